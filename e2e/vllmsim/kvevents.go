package vllmsim

import (
	"bytes"
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
	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
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
	cfg      Config
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
	endpoint := cfg.KVEvents.Endpoint
	if endpoint == "" {
		endpoint = "tcp://*:5557"
	}
	network, address := "tcp", strings.Replace(strings.TrimPrefix(endpoint, "tcp://"), "*", "0.0.0.0", 1)
	if path, is := strings.CutPrefix(endpoint, "ipc://"); is {
		network, address = "unix", path
		_ = os.Remove(path) // what another one has left, as libzmq does
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, startError{fmt.Sprintf("zmq.error.ZMQError: Address already in use (addr='%s'): %v", endpoint, err)}
	}
	p := &publisher{cfg: cfg, listener: l, subs: map[*subscriber]bool{}}
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

// serve sends one subscriber what it wants: everything, for who asks for less has to sort it out.
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
	m := zmq4.NewMsgFrom([]byte(p.cfg.KVEvents.Topic), binary.BigEndian.AppendUint64(nil, p.seq), p.encode(events))
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

// field is a name and a value.
type field struct {
	name  string
	value any
}

// encode writes a batch as vLLM does: a list of the time, the events and the rank, and each event as a map, or before 0.26 as a list.
func (p *publisher) encode(events []batch.Event) []byte {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	write := func(v any) { _ = enc.Encode(v) } // a buffer takes all
	_ = enc.EncodeArrayLen(3)
	write(float64(time.Now().UnixNano()) / 1e9)
	_ = enc.EncodeArrayLen(len(events))
	for _, e := range events {
		fields := p.fields(e)
		if p.cfg.OldMetrics {
			_ = enc.EncodeArrayLen(len(fields))
		} else {
			_ = enc.EncodeMapLen(len(fields))
		}
		for _, f := range fields {
			if !p.cfg.OldMetrics {
				write(f.name)
			}
			write(f.value)
		}
	}
	write(0)
	return b.Bytes()
}

func (p *publisher) fields(e batch.Event) []field {
	switch e.Kind {
	case batch.Stored:
		var parent any
		if e.Parent != 0 {
			parent = e.Parent
		}
		return []field{
			{"type", "BlockStored"}, {"block_hashes", []uint64{e.Hash}}, {"parent_block_hash", parent}, {"token_ids", numbers(e.Tokens)},
			{"block_size", p.cfg.BlockTokens}, {"lora_id", nil}, {"medium", "GPU"}, {"lora_name", nil},
		}
	case batch.Removed:
		return []field{{"type", "BlockRemoved"}, {"block_hashes", []uint64{e.Hash}}, {"medium", "GPU"}}
	}
	return []field{{"type", "AllBlocksCleared"}}
}

func numbers(tokens []words.Token) []int {
	list := make([]int, len(tokens))
	for k, t := range tokens {
		list[k] = int(t)
	}
	return list
}
