package knative

import (
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// instances is what is known of instances besides their states: the pods that
// there are, and the credentials for control paths, which are nowhere but in
// memory. It is safe for many goroutines.
type instances struct {
	mu     sync.Mutex // guards what follows
	tokens map[api.Endpoint]credential
	heard  map[api.InstanceID]time.Time // when each reported last, or was asked
	// pods has the address of each pod, empty before it has one. Pods of other classes' revisions are in it too.
	pods map[api.FunctionName]map[api.InstanceID]string
	// ports are where the functions listen that were brought into their pods, by what those say: it may be another port than the revision's.
	ports map[api.InstanceID]int
}

// credential is the token of an instance.
type credential struct {
	instance api.InstanceID
	token    string
}

func newInstances() *instances {
	return &instances{tokens: map[api.Endpoint]credential{}, heard: map[api.InstanceID]time.Time{}, pods: map[api.FunctionName]map[api.InstanceID]string{}, ports: map[api.InstanceID]int{}}
}

// token is the credential for the control paths at an endpoint; empty: none is known.
func (k *instances) token(at api.Endpoint) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tokens[at].token
}

// learn notes a report, and keeps or forgets the credential that comes with it.
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

// hear notes that something was heard of an instance, or will be.
func (k *instances) hear(id api.InstanceID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard[id] = time.Now()
}

// lastHeard is when an instance was heard of last; zero: never.
func (k *instances) lastHeard(id api.InstanceID) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.heard[id]
}

// sweep forgets the instances without a pod that were heard of before a time, and not since.
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

// forget drops what is known of an instance. The caller holds mu.
func (k *instances) forget(id api.InstanceID) {
	delete(k.heard, id)
	for at, c := range k.tokens {
		if c.instance == id {
			delete(k.tokens, at)
		}
	}
}

// pod takes in a pod that runs or will.
func (k *instances) pod(name api.FunctionName, id api.InstanceID, ip string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pods[name] == nil {
		k.pods[name] = map[api.InstanceID]string{}
	}
	k.pods[name][id] = ip
}

// listens takes in where the function of a pod listens; 0: where its revision says.
func (k *instances) listens(id api.InstanceID, port int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if port > 0 {
		k.ports[id] = port
	}
}

// port is where the function of a pod listens; 0: where its revision says.
func (k *instances) port(id api.InstanceID) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ports[id]
}

// noPod takes in that a pod is gone.
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

// addresses are the pods of a revision that have an address, with it.
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
