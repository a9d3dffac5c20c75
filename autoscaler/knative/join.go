package knative

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Join registers an instance. Its errors are *[api.Error]: 404 for an unknown pod or revision (the sender retries), with
// the code unsupported for another class; 403 for a wrong address or proof; 422 for an invalid declaration.
//
// A join comes from the address that Kubernetes publishes for the pod. Before that the pod needs a proof of its
// identity; without one, Join waits up to [addressWait]. No address is an IPv4-mapped one.
func (f *Fleet) Join(ctx context.Context, r control.RegisterRequest, from netip.Addr, token string) (answer control.RegisterAnswer, err error) {
	name := api.NewFunctionName(r.Namespace, r.Revision)
	fn, err := f.functions.registeredFunction(ctx, name)
	if err != nil {
		return answer, err
	}
	proven, err := f.checkProof(ctx, r, from)
	if err != nil {
		return answer, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.awaitAddress(ctx, r.Instance, name, proven)
	if p == nil || p.function != name {
		return answer, api.Errorf(http.StatusNotFound, "", "there is no pod %s of the revision %s (yet)", r.Instance, name)
	}
	if err := p.checkAddress(from, proven); err != nil {
		return answer, err
	}
	asleep := p.beginsAsleep()
	p.again = true
	p.token, p.address, p.trouble, p.refused, p.asked = token, from, "", "", false
	p.endpoint = api.Endpoint("http://" + netip.AddrPortFrom(from, uint16(r.Port)).String())
	p.client = control.New(f.deps.Transport, func() string { return token })
	if _, s := container(p.object); s != nil {
		p.restarts = s.RestartCount
	}
	if ids := f.nodes.heldDevices(p, r.Devices); len(ids) > 0 {
		asleep = asleep || f.nodes.hasOtherGPUs(p, ids)
		p.devices = ids
	}
	f.log.Info("an instance has joined", "function", name, "instance", p.id, "endpoint", p.endpoint, "version", r.Version)
	p.recordTimes(p.object)
	p.writing.ready = ""
	f.tracker.planPairOf(p)
	return control.RegisterAnswer{Function: fn.WithoutSecrets(), Role: p.role, Endpoint: p.endpoint, Epoch: max(p.epoch, f.cfg.firstEpoch()), Seq: p.status.Seq, Asleep: asleep, Trace: p.trace}, nil
}

// checkProof has Kubernetes check the proof of a pod without a published address, and returns the pod's UID if the proof
// is its own. Anyone can send a join in a pod's name: an address has one proof a second checked, so that it delays no
// other.
func (f *Fleet) checkProof(ctx context.Context, r control.RegisterRequest, from netip.Addr) (uid types.UID, err error) {
	f.mu.Lock()
	if p := f.podOrLeaving(r.Instance); p != nil && r.Proof != "" && p.lacksAddress() {
		if _, again := f.reviewed.LoadOrStore(from, true); !again {
			uid = p.object.UID
			time.AfterFunc(time.Second, func() { f.reviewed.Delete(from) })
		}
	}
	f.mu.Unlock()
	if uid == "" {
		return "", nil
	}
	review, err := f.deps.Kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: r.Proof, Audiences: []string{control.ProofAudience}}}, metav1.CreateOptions{})
	if err != nil {
		return "", api.Errorf(http.StatusNotFound, "", "Kubernetes has not published the address of the pod %s (yet), and its proof can't be checked: %v", r.Instance, err)
	}
	s := review.Status
	claims := func(name, value string) bool {
		return slices.Equal(s.User.Extra["authentication.kubernetes.io/"+name], []string{value})
	}
	if !s.Authenticated || !slices.Contains(s.Audiences, control.ProofAudience) || !claims("pod-name", string(r.Instance)) || !claims("pod-uid", string(uid)) ||
		!strings.HasPrefix(s.User.Username, "system:serviceaccount:"+r.Namespace+":") {
		return "", api.Errorf(http.StatusForbidden, "", "the proof of the pod %s is not valid, another pod's, or not for rouse-autoscaler: it is of %q: %s", r.Instance, s.User.Username, s.Error)
	}
	return uid, nil
}

// addressWait is less than an instance gives one try.
const addressWait = time.Second

// awaitAddress waits as [Fleet.Join] says; nil: there is no pod. The caller holds the mutex, which is released
// meanwhile.
func (f *Fleet) awaitAddress(ctx context.Context, id api.InstanceID, name api.FunctionName, proven types.UID) *pod {
	ctx, cancel := context.WithTimeout(ctx, addressWait)
	defer cancel()
	for {
		p, r := f.podOrLeaving(id), f.revision(name)
		if p == nil || r == nil || proven != "" || !p.lacksAddress() || f.scaler.awaitAct(ctx, r) != nil {
			return p
		}
	}
}

// lacksAddress says that the pod has a node, and no address that Kubernetes has published.
func (p *pod) lacksAddress() bool {
	return p.object.Spec.NodeName != "" && len(addresses(p.object)) == 0
}

func (p *pod) checkAddress(from netip.Addr, proven types.UID) error {
	have := addresses(p.object)
	switch {
	case p.object.Spec.NodeName == "":
		return api.Errorf(http.StatusNotFound, "", "the pod %s runs on no node yet", p.id)
	case len(have) == 0 && proven != "" && proven == p.object.UID:
	case len(have) == 0:
		return api.Errorf(http.StatusNotFound, "", "Kubernetes has not published the address of the pod %s (yet)", p.id)
	case !slices.Contains(have, from):
		p.refused = fmt.Sprintf("a join in its name came from %s and the pod has the address %s", from, have[0])
		return api.Errorf(http.StatusForbidden, "", "the pod %s has another address than %s", p.id, from)
	}
	return nil
}

// dropMovedPod rejects an instance whose pod's sandbox was recreated: the old address may be another pod's.
func (tr *tracker) dropMovedPod(p *pod) {
	have := addresses(p.object)
	if !p.joined() || len(have) == 0 || slices.Contains(have, p.address) {
		return
	}
	p.refused = fmt.Sprintf("it joined from %s and the pod has the address %s", p.address, have[0])
	tr.log.Warn("the address of an instance that has joined is no longer the pod's: it is no longer believed", "function", p.function, "instance", p.id, "joined", p.address, "pod", have[0])
	tr.dropProcess(p, p.refused)
	p.address, p.endpoint = netip.Addr{}, ""
}

// Report takes in a status. Errors are *[api.Error]: 404 if it has to join first, 403 for a wrong token or address, 400
// for an invalid status. It does not block.
func (f *Fleet) Report(s api.InstanceStatus, from netip.Addr, token string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.podOrLeaving(s.Instance)
	switch {
	case p == nil || !p.joined():
		return api.Errorf(http.StatusNotFound, "", "the instance %s has not joined: post to %s first", s.Instance, control.PathRegister)
	case subtle.ConstantTimeCompare([]byte(token), []byte(p.token)) != 1:
		return api.Errorf(http.StatusForbidden, "", "this is not the token that the instance %s has joined with", s.Instance)
	case from != p.address:
		return api.Errorf(http.StatusForbidden, "", "the instance %s has joined from another address than %s", s.Instance, from)
	}
	switch {
	case p.role == control.RoleRequester || p.ended:
		return nil
	case !slices.Contains(api.States, s.State):
		return api.BadRequest("state", "%q is no state of an instance", s.State)
	case s.State == api.Gone: // only Kubernetes can report that a pod is gone
		f.tracker.processEnded(p, cmp.Or(s.Message, "the function's process ended"))
		return nil
	}
	if s = f.tracker.completeStatus(p, s); s.Supersedes(p.status) {
		f.tracker.publishStatus(p, s)
	}
	return nil
}

// completeStatus fills in what the fleet knows better than the instance.
func (tr *tracker) completeStatus(p *pod, s api.InstanceStatus) api.InstanceStatus {
	s.Instance, s.Function, s.Endpoint = p.id, p.function, p.endpoint
	if s.Unplaced() { // it has a node
		s.Stage = ""
	}
	if ids := tr.nodes.heldDevices(p, s.Devices); len(ids) > 0 {
		p.devices = ids
	}
	s.Devices, s.Node, s.Requests = p.devices, p.object.Spec.NodeName, requestsOf(p.object)
	switch s.Spare, s.Shrunk = nil, false; s.State {
	case api.Asleep:
		s.Spare, s.Shrunk = tr.resizer.sparedRequests(p, s.Memory.Host), tr.resizer.hasShrunk(p)
	case api.Awake, api.Draining:
		s.Spare = tr.resizer.sparedRequests(p, 0) // its future memory is not known yet
	}
	if p.role == control.RoleProvider { // a provider claims nothing: the memory that it leaves is another's
		return s
	}
	tr.nodes.setWholeGPUs(p, &s)
	return s
}

func (tr *tracker) processEnded(p *pod, message string) {
	if !p.joined() || p.stopping {
		return
	}
	tr.dropProcess(p, message)
	tr.log.Warn("the process of an instance ended; Kubernetes starts it again", "function", p.function, "instance", p.id, "message", message)
}

func (tr *tracker) dropProcess(p *pod, message string) {
	s := p.unhealthy(message, false)
	s.Memory, s.Running, s.PID = api.Memory{}, 0, 0
	tr.publishStatus(p, s)
	p.token, p.client = "", nil
	p.running = time.Time{}
}

func (tr *tracker) reportTrouble(p *pod, t *trouble) {
	if p.trouble == t.message {
		return
	}
	p.trouble = t.message
	r := tr.revisions[p.function]
	if r != nil {
		r.trouble = t
		if p.role == control.RoleRequester {
			r.failWants(fmt.Errorf("%s: %s", t.reason, t.message))
			tr.pairsDue.Ring()
		}
	}
	tr.publishStatus(p, p.unhealthy(fmt.Sprintf("%s: %s", t.reason, t.message), true))
	if r != nil {
		r.announceAct() // no start waits for it any more
	}
}

// unhealthy is the status of which the fleet learns without the instance.
func (p *pod) unhealthy(message string, gaveUp bool) api.InstanceStatus {
	s := p.status
	s.State, s.Level, s.Message, s.GaveUp, s.Since = api.Unhealthy, 0, message, gaveUp, time.Now()
	s.Seq++
	return s
}
