module turnlog.dev/recorder

go 1.26.0

require (
	turnlog.dev/schema v0.0.0
	turnlog.dev/tokenizer v0.0.0
)

replace (
	turnlog.dev/schema => ../schema
	turnlog.dev/tokenizer => ../tokenizer
)
