module github.com/rouse-dev/rouse/engine/golden

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

require (
	github.com/ollama/ollama v0.17.4
	github.com/rouse-dev/rouse v0.0.0
)

replace github.com/rouse-dev/rouse => ../..
