module turnlog.dev/deploy

go 1.26.0

require (
	turnlog.dev/exporter v0.0.0
	turnlog.dev/gateway v0.0.0
	turnlog.dev/recorder v0.0.0
	turnlog.dev/schema v0.0.0
	turnlog.dev/tokenizer v0.0.0
)

require (
	github.com/antithesishq/antithesis-sdk-go v0.9.0-default-no-op // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/nats-io/jwt/v2 v2.8.3 // indirect
	github.com/nats-io/nats-server/v2 v2.15.3 // indirect
	github.com/nats-io/nkeys v0.4.17 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.1.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace (
	turnlog.dev/exporter => ../exporter
	turnlog.dev/gateway => ../gateway
	turnlog.dev/recorder => ../recorder
	turnlog.dev/schema => ../schema
	turnlog.dev/tokenizer => ../tokenizer
)
