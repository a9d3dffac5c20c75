package server

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// FuzzUntrusted sends any body to the paths that accept posts without trust. Nothing panics, accepted input is whole,
// and every refusal is a client error with a message.
func FuzzUntrusted(f *testing.F) {
	f.Add(true, false, "application/json", []byte(`{"instance":"tiny-1","namespace":"default","revision":"tiny-00001","port":8080,"devices":["GPU-1::2"]}`))
	f.Add(false, false, structured, []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"`+api.EventInstanceState+`","data":{"instance":"tiny-1","function":"a/b","state":"awake","seq":18446744073709551615}}`))
	f.Add(false, true, structured, []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"`+api.EventDemand+`","subject":"a/b","data":{"function":"a/b","waiting":-1}}`))
	f.Add(true, false, "", []byte(`[{}]`))
	f.Add(false, true, structured, []byte(`{"specversion":"1.0","data_base64":"!"}`))
	f.Fuzz(func(t *testing.T, join, ofCluster bool, kind string, body []byte) {
		b := newBench(t)
		path, token := control.PathEvents, podToken
		if join {
			path = control.PathRegister
		}
		if ofCluster {
			token = clusterToken
		}
		w := b.ask("POST", path, string(body), "Authorization", "Bearer "+token, "Content-Type", kind)
		if w.Code/100 != 2 {
			var e struct{ Error struct{ Message string } }
			if err := json.Unmarshal(w.Body.Bytes(), &e); w.Code/100 != 4 || err != nil || e.Error.Message == "" {
				t.Errorf("got %d %s (%v), want a client's error that says what is wrong", w.Code, w.Body, err)
			}
			return
		}
		for _, s := range b.pods.reports {
			if s.Instance == "" || s.Function == "" || !slices.Contains(api.States, s.State) {
				t.Errorf("a report that is none was taken in: %+v", s)
			}
		}
	})
}
