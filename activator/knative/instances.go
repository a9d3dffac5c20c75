package knative

import (
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// instances holds the pods, and credentials, which exist only in memory. It is safe for concurrent use.
type instances struct {
	mu     sync.Mutex // guards the fields below
	tokens map[api.Endpoint]credential
	heard  map[api.InstanceID]time.Time // last report or question
	// Also of other classes' revisions; empty: no address yet.
	pods map[api.FunctionName]map[api.InstanceID]string
	// Of injected functions, if not the revision's.
	ports map[api.InstanceID]int
}

type credential struct {
	instance api.InstanceID
	token    string
}

func newInstances() *instances {
	return &instances{tokens: map[api.Endpoint]credential{}, heard: map[api.InstanceID]time.Time{}, pods: map[api.FunctionName]map[api.InstanceID]string{}, ports: map[api.InstanceID]int{}}
}

// empty: unknown
func (k *instances) token(at api.Endpoint) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tokens[at].token
}

func (k *instances) learn(r control.InstanceReport) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Status.State == api.Gone {
		k.forget(r.Status.Instance)
		return
	}
	k.heard[r.Status.Instance] = time.Now()
	if r.Token != "" && r.Status.Endpoint != "" {
		k.tokens[r.Status.Endpoint] = credential{r.Status.Instance, r.Token}
	}
}

func (k *instances) hear(id api.InstanceID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard[id] = time.Now()
}

func (k *instances) lastHeard(id api.InstanceID) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.heard[id]
}

// sweep forgets the instances without a pod not heard since before.
func (k *instances) sweep(before time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	there := map[api.InstanceID]bool{}
	for _, pods := range k.pods {
		for id := range pods {
			there[id] = true
		}
	}
	for id, at := range k.heard {
		if !there[id] && at.Before(before) {
			k.forget(id)
		}
	}
}

// The caller holds mu.
func (k *instances) forget(id api.InstanceID) {
	delete(k.heard, id)
	for at, c := range k.tokens {
		if c.instance == id {
			delete(k.tokens, at)
		}
	}
}

func (k *instances) pod(name api.FunctionName, id api.InstanceID, ip string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pods[name] == nil {
		k.pods[name] = map[api.InstanceID]string{}
	}
	k.pods[name][id] = ip
}

// 0: the revision's
func (k *instances) listens(id api.InstanceID, port int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if port > 0 {
		k.ports[id] = port
	}
}

func (k *instances) port(id api.InstanceID) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ports[id]
}

func (k *instances) noPod(name api.FunctionName, id api.InstanceID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(id)
	delete(k.ports, id)
	delete(k.pods[name], id)
	if len(k.pods[name]) == 0 {
		delete(k.pods, name)
	}
}

func (k *instances) addresses(name api.FunctionName) map[api.InstanceID]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[api.InstanceID]string{}
	for id, ip := range k.pods[name] {
		if ip != "" {
			out[id] = ip
		}
	}
	return out
}
