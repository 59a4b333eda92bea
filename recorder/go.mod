module turnlog.dev/recorder

go 1.26.0

require (
	github.com/parquet-go/parquet-go v0.32.0
	turnlog.dev/schema v0.0.0
	turnlog.dev/tokenizer v0.0.0
)

require (
	github.com/andybalholm/brotli v1.1.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/parquet-go/bitpack v1.0.0 // indirect
	github.com/parquet-go/jsonlite v1.0.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.21 // indirect
	github.com/twpayne/go-geom v1.6.1 // indirect
	golang.org/x/sys v0.48.0 // indirect
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
