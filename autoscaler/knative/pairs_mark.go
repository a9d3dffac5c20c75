package knative

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/internal/waketrace"
)

// The dual-pod interface of a requester; see functions/requester.go.
const (
	spiReady   = "/v1/become-ready"
	spiUnready = "/v1/become-unready"
	spiProxy   = "/v1/proxy/config"
	spiRelease = "/v1/release"
)

const spiTimeout, markAgain = 2 * time.Second, time.Second

type writing struct {
	busy  bool
	again time.Time // not before
	ready api.InstanceID
}

// updateMarks works in the background. After a restart the marks are read back.
func (pr *pairs) updateMarks() {
	now := time.Now()
	each := func(p *pod) {
		if p.role == control.RoleInstance || p.writing.busy || now.Before(p.writing.again) {
			return
		}
		var do []func(context.Context) error
		if finished(p.object) && p.object.DeletionTimestamp == nil && p.role == control.RoleProvider {
			do = append(do, func(ctx context.Context) error { pr.scaler.deletePod(ctx, p, 0); return nil })
		}
		if patch := p.marksPatch(); len(patch) > 0 {
			span := pr.spanOf(p)
			do = append(do, func(ctx context.Context) error { return pr.writeMarks(waketrace.With(ctx, span), p, patch) })
		}
		if p.role == control.RoleRequester && p.joined() && !p.pair.released {
			if partner := pr.pods[p.pair.bound]; p.pair.bound == "" && p.writing.ready != "" || partner != nil && partner.status.State == api.Awake && p.writing.ready != partner.id {
				do = append(do, pr.setReadiness(p, partner))
			}
		}
		if len(do) == 0 {
			return
		}
		p.writing.busy = true
		pr.startCall(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, spiTimeout)
			defer cancel()
			var failed error
			for _, write := range do {
				if err := write(ctx); err != nil {
					failed = err
				}
			}
			pr.mu.Lock()
			p.writing.busy = false
			if failed != nil {
				p.writing.again = time.Now().Add(markAgain)
				pr.log.Debug("a pod of a pair can't be told of it yet", "pod", p.id, "error", failed)
			}
			pr.mu.Unlock()
			pr.pairsDue.Ring()
		})
	}
	for _, p := range pr.pods {
		each(p)
	}
	for _, p := range pr.leaving {
		each(p)
	}
}

func (p *pod) marksPatch() map[string]any {
	has := slices.Contains(p.object.Finalizers, Finalizer)
	bound := p.pair.bound
	deleted := p.object.DeletionTimestamp != nil
	meta := map[string]any{}
	switch {
	case bound == "" && has:
		meta["$deleteFromPrimitiveList/finalizers"] = []string{Finalizer}
	case bound != "" && !has && !deleted:
		meta["finalizers"] = []string{Finalizer}
	}
	switch at := p.object.Annotations[AnnotationBound]; {
	case at == string(bound):
	case bound == "":
		meta["annotations"] = map[string]any{AnnotationBound: nil}
	default:
		meta["annotations"] = map[string]any{AnnotationBound: string(bound)}
	}
	return meta
}

func (pr *pairs) writeMarks(ctx context.Context, p *pod, patch map[string]any) error {
	pr.mu.Lock()
	before := p.object
	pr.mu.Unlock()
	var o *corev1.Pod
	err := pr.traceWrite(ctx, func() (err error) {
		o, err = pr.patchPod(ctx, before, patch, nil)
		return err
	}, "pair of %s", p.id)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark the pod %s: %w", p.id, err)
	}
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if p.object == before { // ahead of the watch, unless the watch has changed it
		p.object = o
	}
	return nil
}

// setReadiness returns the call that tells a requester which provider serves by its claim.
func (pr *pairs) setReadiness(p, partner *pod) func(context.Context) error {
	var at api.Endpoint
	var id api.InstanceID
	if partner != nil && p.pair.bound != "" {
		at, id = partner.endpoint, partner.id
	}
	return func(ctx context.Context) error {
		path := spiUnready
		to := map[string]any{"address": "", "port": 0}
		if id != "" {
			path = spiReady
			if u, err := url.Parse(string(at)); err == nil {
				host, port, err := net.SplitHostPort(u.Host)
				if n, err2 := strconv.Atoi(port); err == nil && err2 == nil {
					to = map[string]any{"address": host, "port": n}
				}
			}
		}
		if err := pr.callRequester(ctx, p, http.MethodPut, spiProxy, to); err != nil {
			return err
		}
		if err := pr.callRequester(ctx, p, http.MethodPost, path, nil); err != nil {
			return err
		}
		pr.mu.Lock()
		p.writing.ready = id
		pr.mu.Unlock()
		return nil
	}
}

func (pr *pairs) callRequester(ctx context.Context, p *pod, method, path string, body any) error {
	pr.mu.Lock()
	client, endpoint := p.client, p.endpoint
	pr.mu.Unlock()
	if client == nil || endpoint == "" {
		return fmt.Errorf("the requester %s has not joined", p.id)
	}
	if err := client.Call(ctx, method, endpoint, path, body, nil, 1<<16); err != nil {
		return fmt.Errorf("%s %s of %s: %w", method, path, p.id, err)
	}
	return nil
}
