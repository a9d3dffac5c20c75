package vllmsim

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Offload is a connector that keeps the KV cache in the host's memory: every full block is copied there, and what a
// prompt finds there is loaded and not computed. Its memory is taken at the start.
type Offload struct {
	// Bytes is how much it keeps; 0: there is none.
	Bytes int64
	// Outlives says that a sleep leaves it alone. vLLM tells its connector to forget what it keeps when it falls asleep, at either
	// level: the native one does, in versions in which it knows how to; LMCache's does not know.
	Outlives bool
}

// lmcacheSize is what LMCache keeps where nobody says how much.
const lmcacheSize = 5 << 30

// offloadFlags are vLLM's flags of connectors, and our own for a native one that outlives a sleep.
func (cmd *Command) offloadFlags(f flags) {
	o := &cmd.Config.Offload
	f.add(1, func(s string) error {
		n, err := Bytes(s + "GiB")
		if err != nil || n <= 0 {
			return fmt.Errorf("--kv-offloading-size %q: want a number of GiB above 0", s)
		}
		o.Bytes = n
		return nil
	}, "--kv-offloading-size")
	f.add(1, func(s string) error {
		switch s {
		case "native":
		case "lmcache":
			o.Outlives = true
		default:
			return fmt.Errorf("--kv-offloading-backend: invalid choice: %q (choose from native, lmcache)", s)
		}
		return nil
	}, "--kv-offloading-backend")
	f.add(1, o.transfer, "--kv-transfer-config")
}

// transfer reads --kv-transfer-config. Connectors between servers keep nothing here.
func (o *Offload) transfer(s string) error {
	var c struct {
		Connector string `json:"kv_connector"`
		Extra     struct {
			Bytes int64 `json:"cpu_bytes_to_use"`
		} `json:"kv_connector_extra_config"`
	}
	if err := json.Unmarshal([]byte(s), &c); err != nil {
		return fmt.Errorf("--kv-transfer-config: %w", err)
	}
	switch {
	case c.Connector == "OffloadingConnector":
		if c.Extra.Bytes <= 0 {
			return fmt.Errorf("--kv-transfer-config: cpu_bytes_to_use must be specified in kv_connector_extra_config")
		}
		o.Bytes = c.Extra.Bytes
	case strings.HasPrefix(c.Connector, "LMCache"):
		o.Bytes, o.Outlives = lmcacheSize, true
	}
	return nil
}

// offloaded is how many blocks a connector keeps, and how long one of them takes to load.
func (c Config) offloaded() (blocks int, load time.Duration) {
	block := c.KVTokenBytes * int64(c.BlockTokens)
	return int(c.Offload.Bytes / block), time.Duration(float64(block) / c.HostBandwidth * float64(time.Second))
}

// forgetOffloaded is what a connector does that is told to forget. The lock is held.
func (e *engine) forgetOffloaded() {
	if !e.cfg.Offload.Outlives {
		e.batch.ResetOffloaded()
	}
}
