module turnlog.dev/deploy

go 1.26.0

require (
	turnlog.dev/schema v0.0.0
	turnlog.dev/tokenizer v0.0.0
	turnlog.dev/gateway v0.0.0
	turnlog.dev/recorder v0.0.0
	turnlog.dev/exporter v0.0.0
)

replace (
	turnlog.dev/schema => ../schema
	turnlog.dev/tokenizer => ../tokenizer
	turnlog.dev/gateway => ../gateway
	turnlog.dev/recorder => ../recorder
	turnlog.dev/exporter => ../exporter
)
