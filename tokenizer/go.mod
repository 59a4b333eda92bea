module turnlog.dev/tokenizer

go 1.26.0

require (
	github.com/daulet/tokenizers v1.24.0
	github.com/stretchr/testify v1.12.1
	turnlog.dev/schema v0.0.0
)

require (
	github.com/klauspost/compress v1.20.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace turnlog.dev/schema => ../schema
