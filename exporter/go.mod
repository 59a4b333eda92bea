module turnlog.dev/exporter

go 1.26.0

require (
	turnlog.dev/schema v0.0.0
)

replace (
	turnlog.dev/schema => ../schema
)
