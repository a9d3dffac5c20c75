package vllmsim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"
)

// KVEvents is vLLM's option --kv-events-config.
type KVEvents struct {
	Enable    bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"` // default tcp://*:5557
	Topic     string `json:"topic"`
}

// publisher is a PUB socket of ZeroMQ. A nil one publishes nothing.
type publisher struct {
	socket zmq4.Socket
	topic  string
	seq    uint64 // of the next batch; the engine's lock guards it
}

func listenKV(cfg KVEvents) (*publisher, error) {
	if !cfg.Enable || cfg.Publisher == "null" {
		return nil, nil
	}
	endpoint := strings.Replace(cmp.Or(cfg.Endpoint, "tcp://*:5557"), "*", "0.0.0.0", 1)
	if path, is := strings.CutPrefix(endpoint, "ipc://"); is {
		_ = os.Remove(path) // as libzmq does
	}
	p := &publisher{socket: zmq4.NewPub(context.Background()), topic: cfg.Topic}
	if err := p.socket.Listen(endpoint); err != nil {
		return nil, startError{fmt.Sprintf("zmq.error.ZMQError: Address already in use (addr='%s'): %v", endpoint, err)}
	}
	return p, nil
}

// The engine's lock is held.
func (p *publisher) publish(events []Event) {
	if p == nil || len(events) == 0 {
		return
	}
	_ = p.socket.Send(zmq4.NewMsgFrom([]byte(p.topic), binary.BigEndian.AppendUint64(nil, p.seq), encode(events))) // its queue takes all
	p.seq++
}

func (p *publisher) close() {
	if p != nil {
		_ = p.socket.Close()
	}
}

// encode writes vLLM's list of the time, the events and the rank.
func encode(events []Event) []byte {
	list := make([]object, len(events))
	for i, e := range events {
		switch e.Kind {
		case Stored:
			list[i] = object{"type": "BlockStored", "block_hashes": []uint64{e.Hash}, "parent_block_hash": nil, "token_ids": e.Tokens,
				"block_size": blockTokens, "lora_id": nil, "medium": "GPU", "lora_name": nil}
			if e.Parent != 0 {
				list[i]["parent_block_hash"] = e.Parent
			}
		case Removed:
			list[i] = object{"type": "BlockRemoved", "block_hashes": []uint64{e.Hash}, "medium": "GPU"}
		default:
			list[i] = object{"type": "AllBlocksCleared"}
		}
	}
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	_ = enc.Encode([]any{float64(time.Now().UnixNano()) / 1e9, list, 0})
	return b.Bytes()
}
