package knative

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// quick makes a function go down as soon as it may.
var quick = []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=4s", "rouse.dev/gone-after=6s"}

// napping sleeps as soon as it may, and for long enough to be met asleep on a busy machine.
var napping = []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=4s", "rouse.dev/gone-after=30s"}

// lasting keeps a function as it is once it is awake.
var lasting = []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=0"}

// TestLifeOfAFunction goes once through all states: ready with zero pods, a held
// request, warm, asleep with its pod there, awake again, zero pods, cold again.
func TestLifeOfAFunction(t *testing.T) {
	parallel(t)
	f := create(t, "life", functionImage, napping)
	if got := len(f.pods()); got != 0 {
		t.Fatalf("%d pods after kn service create returned, want it ready with none", got)
	}
	for i, words := range []string{"red blue", "apple pear"} {
		if a := f.ask(words); !strings.Contains(a.body, words) {
			t.Errorf("request %d: %s; want %s in it", i, a.body, words)
		}
	}
	warm := f.ask("sun moon")
	if timing := warm.header.Get("Server-Timing"); !strings.Contains(timing, "hold;dur=0,") {
		t.Errorf("a warm request says Server-Timing %q, want no hold", timing)
	}
	f.hasState("asleep")
	before := f.pods()
	if len(before) != 1 {
		t.Fatalf("%d pods while asleep, want 1", len(before))
	}
	if a := f.ask("king queen"); !strings.Contains(a.body, "king queen") {
		t.Errorf("woken, it answers %s", a.body)
	}
	if after := f.pods(); len(after) != 1 || after[0].Metadata.Name != before[0].Metadata.Name {
		t.Errorf("the pods are %v after the wake, want the one that slept, %s", after, before[0].Metadata.Name)
	}
	f.hasPods(0)
	if a := f.ask("stone paper"); !strings.Contains(a.body, "stone paper") {
		t.Errorf("started again, it answers %s", a.body)
	}
}

// TestBurstAtZero sends 200 requests to a function with no pods, each with an answer of its own.
func TestBurstAtZero(t *testing.T) {
	parallel(t)
	f := create(t, "burst", functionImage, lasting)
	burst(t, f, 200)
}

// words can be paired in any way: pico echoes every pair.
var words = strings.Fields("red blue apple pear sun moon king queen stone paper milk bread")

func pair(i int) string { return words[i%len(words)] + " " + words[(i/len(words)+1)%len(words)] }

// burst sends n requests at once and wants the right answer to each.
func burst(t *testing.T, f *function, n int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			a, err := call(t.Context(), f.c, f.host(), "/v1/chat/completions", chat(f.name, pair(i)))
			if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, pair(i)) {
				t.Errorf("request %d: status %d, %v: %s; want %q", i, a.status, err, a.body, pair(i))
			}
		})
	}
	all.Wait()
}

// TestStreamFromZero wants comments while the function starts, then the tokens, then the end.
func TestStreamFromZero(t *testing.T) {
	parallel(t)
	f := create(t, "stream", functionImage, quick)
	for range 2 { // from zero, and warm
		text, err := stream(t, f, "apple pear")
		if err != nil || strings.TrimSpace(text) != "apple pear" {
			t.Errorf("the stream says %q, %v; want apple pear and a whole end", text, err)
		}
	}
}

// stream reads a streamed chat; the error says how it ended otherwise than with [DONE].
func stream(t *testing.T, f *function, words string) (string, error) {
	t.Helper()
	body, err := json.Marshal(chat(f.name, words, func(m map[string]any) { m["stream"] = true }))
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.c.IngressURL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Host = f.host()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var text strings.Builder
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue // a comment, or the empty line between events
		}
		if data == "[DONE]" {
			return text.String(), nil
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
			Error   *struct{ Message string }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return text.String(), err
		}
		if chunk.Error != nil {
			return text.String(), fmt.Errorf("the stream ends with the error %q", chunk.Error.Message)
		}
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
	if err := lines.Err(); err != nil {
		return text.String(), fmt.Errorf("read the stream: %w", err)
	}
	return text.String(), errors.New("the stream ends without [DONE]")
}

// TestFrontDoorAndOwnHostBehaveAlike compares the two ways to a function.
func TestFrontDoorAndOwnHostBehaveAlike(t *testing.T) {
	parallel(t)
	f := create(t, "door", functionImage, append([]string{"rouse.dev/aliases=door-alias"}, lasting...))
	for _, model := range []string{"door", "door-alias", "default/door"} {
		own, err := call(t.Context(), f.c, f.host(), "/v1/chat/completions", chat(model, "red blue"))
		if err != nil {
			t.Fatal(err)
		}
		front, err := frontDoor(t, f.c, "/v1/chat/completions", chat(model, "red blue"))
		if err != nil {
			t.Fatal(err)
		}
		if own.status != 200 || front.status != 200 || !strings.Contains(own.body, "red blue") || !strings.Contains(front.body, "red blue") {
			t.Errorf("model %s: own host %d %s; front door %d %s", model, own.status, own.body, front.status, front.body)
		}
	}
	unknown, err := frontDoor(t, f.c, "/v1/chat/completions", chat("dor", "red blue"))
	if err != nil || unknown.status != http.StatusNotFound || !strings.Contains(unknown.body, `"model_not_found"`) {
		t.Errorf("an unknown model: status %d, %v: %s", unknown.status, err, unknown.body)
	}
	for _, path := range []string{"/rouse/v1/state", "/metrics"} {
		if a, err := call(t.Context(), f.c, f.host(), path, nil); err != nil || a.status != http.StatusNotFound {
			t.Errorf("GET %s at the function's own host: status %d, %v; want 404: it is not for clients", path, a.status, err)
		}
	}
}
