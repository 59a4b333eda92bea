module turnlog.dev/schema

go 1.26.0

require (
	github.com/klauspost/compress v1.20.4
	github.com/stretchr/testify v1.12.1
	google.golang.org/protobuf v1.36.12
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
