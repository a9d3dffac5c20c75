package metrics

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/vmihailenco/msgpack/v5"
)

// batch writes a batch of events: lists, or maps with names.
func batch(t testing.TB, events ...any) []byte {
	t.Helper()
	return encode(t, []any{1757500000.25, events, 0})
}

// namedBatch is batch with the batch as a map.
func namedBatch(t testing.TB, events ...any) []byte {
	t.Helper()
	return encode(t, named{"ts": 1757500000.25, "events": events, "data_parallel_rank": 0})
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type (
	list  = []any
	named = map[string]any
)

// TestRecordedEvents: vLLM 0.32 has reported three blocks of 128 tokens, and three more for an adapter with the same prompt.
func TestRecordedEvents(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("..", "runtime", "testdata", "vllm.txt"))
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "events" })
	if at < 0 {
		t.Fatal("no events are recorded")
	}
	f := NewFollower("", slog.New(slog.DiscardHandler))
	var got []int64
	for line := range strings.Lines(string(archive.Files[at].Data)) {
		number, batch, _ := strings.Cut(strings.TrimSpace(line), " ")
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(batch)
		if err != nil {
			t.Fatal(err)
		}
		f.take([][]byte{nil, binary.BigEndian.AppendUint64(nil, seq), raw}, len(got) == 0)
		tokens, known := f.Tokens()
		if !known {
			t.Errorf("batch %d is not understood", seq)
		}
		got = append(got, tokens)
	}
	if want := []int64{3 * 128, 6 * 128}; !slices.Equal(got, want) {
		t.Errorf("after each batch there are %d tokens, want %d", got, want)
	}
}

// TestDecodeEvents: events of all shapes in use decode to the same.
func TestDecodeEvents(t *testing.T) {
	big := uint64(0xffffffffffffffff)
	for name, c := range map[string]struct {
		events []any
		tokens int64
	}{
		"old":         {[]any{list{"BlockStored", list{1, big}, nil, list{5, 6, 7, 8}, 2, nil}, list{"BlockStored", list{-3}, 1, list{9, 9}, 2, nil, "GPU"}}, 6},
		"old removal": {[]any{list{"BlockStored", list{1, big}, nil, list{5, 6, 7, 8}, 2, nil}, list{"BlockRemoved", list{big, 7}}}, 2},
		"new": {[]any{named{"type": "BlockStored", "block_hashes": list{1, big}, "parent_block_hash": nil, "token_ids": list{1, 2, 3, 4}, "block_size": 2, "medium": "GPU",
			"extra_keys": list{list{"salt"}, nil}, "group_idx": 0, "locality": "LOCAL"}, named{"type": "BlockRemoved", "block_hashes": list{1}, "medium": "GPU"}}, 2},
		"bytes":                    {[]any{named{"type": "BlockStored", "block_hashes": list{[]byte("one"), []byte("two"), []byte("one")}, "block_size": 16}, list{"BlockRemoved", list{[]byte("two")}, "GPU"}}, 16},
		"cleared":                  {[]any{list{"BlockStored", list{1}, nil, list{}, 16}, list{"AllBlocksCleared"}}, 0},
		"cleared and more":         {[]any{list{"BlockStored", list{1}, nil, list{}, 16}, named{"type": "AllBlocksCleared"}, list{"BlockStored", list{2}, nil, list{}, 16}}, 16},
		"moved to host memory":     {[]any{list{"BlockStored", list{1}, nil, list{}, 16, nil, "GPU"}, list{"BlockStored", list{1}, nil, list{}, 16, nil, "CPU"}, list{"BlockRemoved", list{1}, "GPU"}}, 16},
		"another group":            {[]any{list{"BlockStored", list{1}, nil, list{}, 16, nil, "GPU", nil, nil, 1}, list{"BlockStored", list{2}, nil, list{}, 64, nil, "GPU", nil, nil, 0}, list{"BlockRemoved", list{1}, "GPU", 0}}, 16},
		"an event that is unknown": {[]any{list{"BlockMoved", list{1}, 5}, named{"type": "Other", "x": named{"y": 1}}, list{"BlockStored", list{1}, nil, list{}, 16}}, 16},
		"without a size":           {[]any{list{"BlockStored", list{1}, nil, list{}, 0}, list{"BlockStored", list{2}, nil, list{}, -16}, list{"BlockStored", list{3}, nil, list{}, 1 << 40}}, 0},
	} {
		for _, raw := range [][]byte{batch(t, c.events...), namedBatch(t, c.events...)} {
			var cache kvCache
			cache.begin()
			if err := decode(raw, cache.see); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n, known := cache.Tokens(); n != c.tokens || !known {
				t.Errorf("%s: %d tokens, known: %t, want %d", name, n, known, c.tokens)
			}
		}
	}
	for name, raw := range map[string][]byte{
		"nothing": {}, "no batch": {0xc0}, "a number": {1}, "empty": {0x90}, "events are none": batch(t)[:10],
		"a hash is a text": batch(t, list{"BlockRemoved", list{"x"}}), "a size is a text": batch(t, list{"BlockStored", list{1}, nil, list{}, "x"}),
		"no kind": batch(t, list{}), "no events": {0x80}, "a map is cut": namedBatch(t, list{"AllBlocksCleared"})[:20], "a length that lies": {0x92, 0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0x91},
	} {
		if err := decode(raw, func(event) {}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// FuzzDecodeEvents checks for any input that the number of tokens matches the blocks.
func FuzzDecodeEvents(f *testing.F) {
	f.Add(batch(f, list{"BlockStored", list{1, 2}, nil, list{5, 6, 7, 8}, 2, nil, "GPU"}, named{"type": "BlockRemoved", "block_hashes": list{1}}))
	f.Add(batch(f, named{"type": "BlockStored", "block_hashes": list{[]byte("one")}, "block_size": 16}, list{"AllBlocksCleared"}))
	f.Add(namedBatch(f, named{"type": "BlockStored", "block_hashes": list{1, 2}, "block_size": 16}, list{"AllBlocksCleared"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var cache kvCache
		cache.begin()
		_ = decode(raw, cache.see)
		sum := int64(0)
		for _, b := range cache.blocks {
			sum += int64(b.size)
		}
		if n, known := cache.Tokens(); n != sum || !known {
			t.Fatalf("%d tokens, known: %t, in blocks of %d", n, known, sum)
		}
	})
}

// server publishes the test's events to the last subscriber.
type server struct {
	t    *testing.T
	path string
	l    net.Listener

	mu sync.Mutex // guards z
	z  *zmq4.Conn
}

func startServer(t *testing.T, path string) *server {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, path: path, l: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			z, err := zmq4.Open(conn, null.Security(), zmq4.Pub, nil, true, nil)
			if err != nil {
				continue
			}
			if _, err := z.RecvMsg(); err != nil {
				continue
			}
			s.mu.Lock()
			s.z = z
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() { s.stop(); all.Wait() })
	return s
}

func (s *server) conn() *zmq4.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.z
}

func (s *server) stop() {
	s.l.Close()
	if z := s.conn(); z != nil {
		z.Close()
	}
}

func (s *server) send(frames ...[]byte) {
	s.t.Helper()
	eventually(s.t, "a subscriber", func() bool { return s.conn() != nil })
	if err := s.conn().SendMsg(zmq4.NewMsgFrom(frames...)); err != nil {
		s.t.Error(err)
	}
}

func (s *server) batch(seq uint64, events ...any) {
	s.t.Helper()
	s.send([]byte("kv-events"), binary.BigEndian.AppendUint64(nil, seq), batch(s.t, events...))
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begin := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%s did not come", what)
		}
	}
}

// TestFollow: a follower knows a cache from its first event on. After a missed event the cache is unknown until it is cleared. The
// follower then follows the next server at the same endpoint.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv.sock")
	f := NewFollower("ipc://"+path, slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	defer running.Wait()
	defer stop()
	store := func(hashes ...any) any { return list{"BlockStored", hashes, nil, list{}, 16} }
	want := func(tokens int64, known bool) {
		t.Helper()
		eventually(t, "the number of tokens", func() bool { n, k := f.Tokens(); return n == tokens && k == known })
	}
	want(0, false)
	s := startServer(t, path)
	s.batch(0, store(1, 2))
	want(32, true)
	s.batch(1, store(3))
	want(48, true)
	s.batch(3, store(4)) // 2 is missing
	want(0, false)
	s.batch(4, list{"AllBlocksCleared"}, store(5))
	want(16, true)
	s.send([]byte("kv-events"), binary.BigEndian.AppendUint64(nil, 5), []byte("no batch"))
	want(0, false)
	s.batch(6, list{"AllBlocksCleared"})
	want(0, true)
	s.send([]byte("one frame"))
	want(0, false)
	s.stop()
	s = startServer(t, path)
	s.batch(0, store(1))
	want(16, true)
	s.stop()
	want(0, false)
	s = startServer(t, path)
	s.batch(5, store(6)) // missed batches were probes
	want(16, true)
	s.stop()
	want(0, false)
	s = startServer(t, path)
	s.batch(70, store(9)) // connected too late
	s.batch(71, list{"AllBlocksCleared"}, store(9, 10, 11))
	want(48, true)
}

// TestEventEndpoints: an unusable endpoint harms nothing.
func TestEventEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{"ipc:///a/b": "unix /a/b", "tcp://127.0.0.1:5557": "tcp 127.0.0.1:5557", "inproc://x": " ", "x": " "} {
		network, address, err := split(endpoint)
		if got := network + " " + address; got != want || (err != nil) != (want == " ") {
			t.Errorf("%s: %q, %v", endpoint, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	NewFollower("x", slog.New(slog.NewTextHandler(io.Discard, nil))).Run(ctx)
}
