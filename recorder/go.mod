module turnlog.dev/recorder

go 1.26.0

require (
	turnlog.dev/schema v0.0.0
	turnlog.dev/tokenizer v0.0.0
)

require (
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

require (
	github.com/klauspost/compress v1.20.4 // indirect
	golang.org/x/sync v0.25.0
	google.golang.org/protobuf v1.36.12
)

replace (
	turnlog.dev/schema => ../schema
	turnlog.dev/tokenizer => ../tokenizer
)
