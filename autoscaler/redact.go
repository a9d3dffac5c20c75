package autoscaler

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// redactor removes from a record what may be a secret or a user's text. Commands, environments and model references are
// only ever compared: they become digests with a key that is not kept. So does output of runtimes, also where a decision
// repeats it. It is safe for concurrent use.
type redactor struct {
	key [32]byte

	mu          sync.Mutex        // guards all below
	now, before map[string]string // printed texts and their digests
}

func newRedactor() *redactor {
	r := &redactor{now: make(map[string]string)}
	_, _ = rand.Read(r.key[:])
	return r
}

// printed precedes a runtime's output in messages of instances.
const printed = "; its last output:"

// mostPrinted is the size at which now moves to before.
const mostPrinted = 512

func (r *redactor) digest(text string) string {
	if text == "" {
		return ""
	}
	h := hmac.New(sha256.New, r.key[:])
	h.Write([]byte(text))
	return "~" + hex.EncodeToString(h.Sum(nil)[:8])
}

func (r *redactor) digests(list []string) []string {
	list = slices.Clone(list)
	for k := range list {
		list[k] = r.digest(list[k])
	}
	return list
}

func (r *redactor) message(text string) string {
	at := strings.Index(text, printed)
	if at < 0 {
		return text
	}
	return text[:at] + r.learn(text[at:])
}

// learn replaces a text that begins with printed.
func (r *redactor) learn(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, found := r.known(text); found {
		return known
	}
	if len(r.now) >= mostPrinted {
		r.now, r.before = make(map[string]string), r.now
	}
	r.now[text] = printed + " " + r.digest(text)
	return r.now[text]
}

func (r *redactor) known(text string) (digest string, found bool) {
	if digest, found = r.now[text]; !found {
		digest, found = r.before[text]
	}
	return digest, found
}

func (r *redactor) text(text string) string {
	if !strings.Contains(text, printed) {
		return text
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range []map[string]string{r.now, r.before} {
		for secret, digest := range list {
			text = strings.ReplaceAll(text, secret, digest)
		}
	}
	for at := 0; ; { // unknown output cuts the text off
		next := strings.Index(text[at:], printed)
		if next < 0 {
			return text
		}
		if at += next + len(printed); !strings.HasPrefix(text[at:], " ~") {
			return text[:at]
		}
	}
}

func (r *redactor) adapters(list []api.Adapter) []api.Adapter {
	list = slices.Clone(list)
	for k := range list {
		list[k].Path = r.digest(list[k].Path)
	}
	return list
}

func (r *redactor) function(f api.Function) api.Function {
	rt := &f.Runtime
	rt.Model, rt.AdapterRoot = r.digest(rt.Model), r.digest(rt.AdapterRoot)
	rt.Command, rt.Args, rt.Env = r.digests(rt.Command), r.digests(rt.Args), r.digests(rt.Env)
	rt.Adapters = r.adapters(rt.Adapters)
	f.Handler = r.digests(f.Handler)
	f.ProviderPatch, f.Manifest, f.Origin = r.digest(f.ProviderPatch), r.digest(f.Manifest), r.digest(f.Origin)
	return f
}

func (r *redactor) status(s api.InstanceStatus) api.InstanceStatus {
	s.Message = r.message(s.Message)
	s.Steps, s.StepsSpan = nil, ""
	return s
}

func demandOnly(d api.Demand) api.Demand {
	d.Tenants, d.Trace = nil, ""
	return d
}

func (r *redactor) input(in input) input {
	switch in := in.(type) {
	case *functionPut:
		return &functionPut{Spec: r.function(in.Spec), Recalled: in.Recalled}
	case *instanceReported:
		return &instanceReported{Status: r.status(in.Status), Hidden: hiddenOf(in.Status)}
	case *demandReported:
		return &demandReported{Demand: demandOnly(in.Demand)}
	case *used:
		out := &used{Function: in.Function, Activator: in.Activator}
		for _, u := range in.usage.Uses {
			out.Uses = append(out.Uses, UsedBy{"", r.digest(u.Tenant + "\x00" + u.Key), u.Begun.Truncate(time.Microsecond), u.Requests, int64(u.Input), int64(u.Output)})
		}
		return out
	case *returned:
		out := *in
		out.Status, out.Hidden = r.status(in.Status), hiddenOf(in.Status)
		if in.Err != nil {
			err := *in.Err
			if err.Text = r.message(err.Text); err.API != nil {
				is := *err.API
				is.Message = r.message(is.Message)
				err.API = &is
			}
			out.Err = &err
		}
		return &out
	}
	return in
}

func (r *redactor) learnAll(s *saved) {
	for k := range s.Functions {
		f := &s.Functions[k]
		r.message(f.Function.LastError)
		for n := range f.Instances {
			r.message(f.Instances[n].Instance.Status.Message)
			r.message(f.Instances[n].Instance.Lost)
		}
	}
}

// state redacts s in place. s must own its slices.
func (r *redactor) state(s *saved) {
	for k := range s.Calls {
		s.Calls[k].Call.Adapters = r.adapters(s.Calls[k].Call.Adapters)
	}
	for k := range s.Functions {
		f := &s.Functions[k]
		f.Function.Spec = r.function(f.Function.Spec)
		f.Function.LastError = r.message(f.Function.LastError)
		for n := range f.Demands {
			f.Demands[n].Demand = demandOnly(f.Demands[n].Demand)
		}
		for n := range f.Instances {
			i := &f.Instances[n]
			i.Instance.Status = r.status(i.Instance.Status)
			i.Instance.Lost = r.message(i.Instance.Lost)
			i.Adapters = r.adapters(i.Adapters)
			i.Instance.Grant.Trace = ""
		}
		for n := range f.Decisions {
			f.Decisions[n].Reason, f.Decisions[n].Error = r.text(f.Decisions[n].Reason), r.text(f.Decisions[n].Error)
		}
		f.LastWait = r.text(f.LastWait)
	}
}
