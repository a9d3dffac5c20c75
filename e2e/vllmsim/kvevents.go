package vllmsim

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/rouse-dev/rouse/e2e/vllmsim/batch"
)

// KVEvents is vLLM's option --kv-events-config, as far as it is simulated.
type KVEvents struct {
	Enable    bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"` // default tcp://*:5557
	Topic     string `json:"topic"`
}

// publisher is a PUB socket of ZeroMQ, which sends each subscriber what comes after it has come. A nil one publishes nothing.
type publisher struct {
	topic    string
	listener net.Listener
	all      sync.WaitGroup // the goroutines

	mu   sync.Mutex // guards what follows
	subs map[*subscriber]bool
	seq  uint64
}

// subscriber has a queue, which the publisher closes: vLLM's are 100,000 long, and drop what does not fit.
type subscriber struct {
	conn  net.Conn
	queue chan zmq4.Msg
}

// listenKV opens the socket where one is wanted, and accepts until it is closed.
func listenKV(cfg Config) (*publisher, error) {
	if !cfg.KVEvents.Enable || cfg.KVEvents.Publisher == "null" {
		return nil, nil
	}
	endpoint := cmp.Or(cfg.KVEvents.Endpoint, "tcp://*:5557")
	network, address := "tcp", strings.Replace(strings.TrimPrefix(endpoint, "tcp://"), "*", "0.0.0.0", 1)
	if path, is := strings.CutPrefix(endpoint, "ipc://"); is {
		network, address = "unix", path
		_ = os.Remove(path) // what another one has left, as libzmq does
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, startError{fmt.Sprintf("zmq.error.ZMQError: Address already in use (addr='%s'): %v", endpoint, err)}
	}
	p := &publisher{topic: cfg.KVEvents.Topic, listener: l, subs: map[*subscriber]bool{}}
	p.all.Go(p.accept)
	return p, nil
}

func (p *publisher) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // it is closed
		}
		p.all.Go(func() { p.serve(conn) })
	}
}

// serve sends one subscriber everything, whatever it subscribes to.
func (p *publisher) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	z, err := zmq4.Open(conn, null.Security(), zmq4.Pub, nil, true, nil)
	if err != nil {
		return
	}
	if _, err := z.RecvMsg(); err != nil { // the subscription
		return
	}
	_ = conn.SetDeadline(time.Time{})
	s := &subscriber{conn: conn, queue: make(chan zmq4.Msg, 1000)}
	p.mu.Lock()
	closed := p.subs == nil
	if !closed {
		p.subs[s] = true
	}
	p.mu.Unlock()
	if closed {
		return
	}
	for m := range s.queue {
		if z.SendMsg(m) != nil {
			break
		}
	}
	p.mu.Lock()
	delete(p.subs, s)
	p.mu.Unlock()
}

// publish sends a batch of what has happened in a step, if anything has.
func (p *publisher) publish(events []batch.Event) {
	if p == nil || len(events) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := zmq4.NewMsgFrom([]byte(p.topic), binary.BigEndian.AppendUint64(nil, p.seq), encode(events))
	p.seq++
	for s := range p.subs {
		select {
		case s.queue <- m:
		default:
		}
	}
}

func (p *publisher) close() {
	if p == nil {
		return
	}
	p.listener.Close()
	p.mu.Lock()
	for s := range p.subs {
		s.conn.Close()
		close(s.queue)
	}
	p.subs = nil
	p.mu.Unlock()
	p.all.Wait()
}

// encode writes a batch as vLLM does: a list of the time, the events and the rank.
func encode(events []batch.Event) []byte {
	list := make([]map[string]any, len(events))
	for i, e := range events {
		switch e.Kind {
		case batch.Stored:
			list[i] = map[string]any{"type": "BlockStored", "block_hashes": []uint64{e.Hash}, "parent_block_hash": nil, "token_ids": e.Tokens,
				"block_size": blockTokens, "lora_id": nil, "medium": "GPU", "lora_name": nil}
			if e.Parent != 0 {
				list[i]["parent_block_hash"] = e.Parent
			}
		case batch.Removed:
			list[i] = map[string]any{"type": "BlockRemoved", "block_hashes": []uint64{e.Hash}, "medium": "GPU"}
		default:
			list[i] = map[string]any{"type": "AllBlocksCleared"}
		}
	}
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	_ = enc.Encode([]any{float64(time.Now().UnixNano()) / 1e9, list, 0}) // a buffer takes all
	return b.Bytes()
}
