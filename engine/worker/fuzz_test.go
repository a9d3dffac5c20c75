package worker_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// FuzzServe sends a worker three batches of arbitrary bytes. It answers each with an output that can be
// decoded, or it ends with an error. It does not panic.
func FuzzServe(f *testing.F) {
	batch := func(items ...worker.Item) []byte {
		return worker.AppendBatch(nil, &worker.Batch{Step: 1, Items: items})
	}
	begin := worker.Item{ID: 1, Count: 3, Begin: true, Prompt: 3, Tokens: []int32{1, 2, 3}, Blocks: []int32{0, 1}, Sample: true}
	mask := slices.Clone([]uint64{1 << 40, 0, 7})
	scored, pooled, broken := begin, begin, begin
	scored.Score, scored.Spec = true, json.RawMessage(`{"top":5,"logprobs":true,"temperature":1,"seed":3}`)
	pooled.Sample, pooled.Pool, pooled.Spec = false, true, json.RawMessage(`{"pool":"mean"}`)
	broken.Spec = json.RawMessage(`{"top":500,"top_k":-1}`)
	f.Add(batch(begin), batch(worker.Item{ID: 1, Pos: 3, Count: 1, Sample: true}), batch(worker.Item{ID: 1, Pos: 4, Count: 3, Sample: true, Draft: []int32{4, 5}}))
	f.Add(batch(scored, pooled), batch(worker.Item{ID: 1, Pos: 3, Count: 1, Sample: true, Mask: mask}), batch(begin, begin))
	f.Add(batch(broken), batch(pooled, worker.Item{ID: 1, Pos: 0, Count: 1, Sample: true}), []byte{})
	options, err := json.Marshal(infer.SimulatedConfig{Vocab: 200, Context: 64, Blocks: 8})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, one, two, three []byte) {
		here, there := worker.Pipe()
		done := make(chan error, 1)
		go func() { done <- worker.Serve(t.Context(), there, builder()) }()
		send := func(kind worker.Kind, v any) {
			if err := worker.SendJSON(here, kind, v); err != nil {
				t.Error(err)
			}
		}
		send(worker.KindHello, worker.Hello{Protocol: worker.Protocol, Depth: 2})
		send(worker.KindOp, worker.Op{ID: 1, Verb: worker.OpLoad, Load: &worker.Load{Device: "sim", Options: options}})
		for _, want := range []worker.Kind{worker.KindHello, worker.KindReply} {
			if kind, _, err := here.Receive(); kind != want || err != nil {
				t.Fatalf("a frame of kind %d, %v; want %d", kind, err, want)
			}
		}
		for _, payload := range [][]byte{one, two, three} {
			if here.Send(worker.KindBatch, payload) != nil {
				break
			}
			kind, answer, err := here.Receive()
			if err != nil {
				break // it refused the frame
			}
			var o worker.Output
			if err := worker.DecodeOutput(answer, &o); kind != worker.KindOutput || err != nil {
				t.Errorf("a frame of kind %d, %v; want an output", kind, err)
			}
		}
		here.Close()
		var b worker.Batch
		bad := worker.DecodeBatch(one, &b) != nil || worker.DecodeBatch(two, &b) != nil || worker.DecodeBatch(three, &b) != nil
		if err := <-done; err != nil && !bad {
			t.Errorf("it ends with %v", err)
		}
	})
}
