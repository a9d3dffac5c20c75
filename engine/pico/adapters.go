package pico

import "embed"

// Adapters are low-rank adapters of pico, one in each format that the engine reads: shout (GGUF) answers in capitals,
// pirate (a folder of the PEFT library) ends every answer with "arr!".
//
//go:embed adapters
var Adapters embed.FS

// AdapterPaths maps the adapters' names to their paths in Adapters.
var AdapterPaths = map[string]string{"shout": "adapters/shout.gguf", "pirate": "adapters/pirate"}
