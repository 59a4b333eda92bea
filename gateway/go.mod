module turnlog.dev/gateway

go 1.26.0

require (
	turnlog.dev/schema v0.0.0
	turnlog.dev/tokenizer v0.0.0
)

require (
	github.com/labstack/echo/v5 v5.4.6 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)

replace (
	turnlog.dev/schema => ../schema
	turnlog.dev/tokenizer => ../tokenizer
)
