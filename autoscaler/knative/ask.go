package knative

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

func (tr *tracker) askAll(ctx context.Context) {
	tr.mu.Lock()
	var at []api.Endpoint
	for _, p := range tr.pods {
		if e := address(p.object); e != "" && !p.joined() {
			at = append(at, e)
		}
	}
	tr.mu.Unlock()
	room := make(chan struct{}, 32)
	var asked sync.WaitGroup
	for _, e := range at {
		room <- struct{}{}
		asked.Go(func() {
			defer func() { <-room }()
			_, err := tr.askReport(ctx, e)
			if err != nil {
				tr.log.Debug("a pod from before does not answer yet", "endpoint", e, "error", err)
			}
		})
	}
	asked.Wait()
}

// askReport returns the HTTP status of the instance's answer.
func (tr *tracker) askReport(ctx context.Context, e api.Endpoint) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL(control.PathReport), nil)
	if err != nil {
		return 0, err
	}
	resp, err := tr.deps.Transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

func (tr *tracker) askWhyNotJoined(ctx context.Context, p *pod, e api.Endpoint) {
	status, err := tr.askReport(ctx, e)
	runs := status == http.StatusAccepted || status == http.StatusTooManyRequests
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case p.joined() || p.ended || ctx.Err() != nil:
	case err != nil:
		p.asked, p.running = false, time.Now()
	case runs && p.refused != "":
		tr.reportTrouble(p, &trouble{"NotJoined", fmt.Sprintf("the function of the pod %s runs, but may not join: %s. The autoscaler must see the pod's own address: take proxies and address translation out of the way between them, a service mesh's sidecar for instance",
			p.id, p.refused)})
	case runs:
		tr.reportTrouble(p, &trouble{"NotJoined", fmt.Sprintf("the function of the pod %s runs, but it does not reach the autoscaler at %s: check the NetworkPolicies of both namespaces, the cluster's DNS, and ROUSE_CONTROL in the container",
			p.id, control.DefaultControlURL)})
	case tr.replacePod(p):
	default:
		tr.reportTrouble(p, &trouble{"ForeignImage", fmt.Sprintf("the image of the pod %s answers at %s but is no function of Rouse (%d for %s): %s, or take the class annotation off to have it served by Knative",
			p.id, e, status, control.PathReport, describeForeign(p.object))})
	}
}

// replacePod deletes a pod that may be older than the injector's rules, once per revision, and reports whether it did.
// The caller holds the mutex.
func (tr *tracker) replacePod(p *pod) bool {
	r, has := tr.revisions[p.function], p.object.Annotations
	if r == nil || r.replaced || p.stopping || p.role != control.RoleInstance || has[config.AnnotationInjected]+has[config.AnnotationNotInjected]+has[config.AnnotationEndpoint] != "" || has[config.AnnotationInject] == "false" {
		return false
	}
	d, err := tr.deployment(p.function)
	if err != nil {
		return false
	}
	r.replaced = true
	r.adoptScale(d)
	r.lowerFor(p)
	tr.scaler.updateCosts(r)
	tr.log.Info("replacing a pod without a function: it may be older than the injector", "function", p.function, "pod", p.id)
	tr.startCall(func(ctx context.Context) {
		if err := tr.scaler.deleteByScale(ctx, r, p, d, false); err != nil {
			tr.log.Warn("pod not replaced", "pod", p.id, "error", err)
		}
	})
	return true
}

func describeForeign(o *corev1.Pod) string {
	switch why := o.Annotations[config.AnnotationNotInjected]; {
	case why != "":
		return fmt.Sprintf("%s. Set the container's command, or the annotation %s to \"true\" for a model server's own image, or start it through rouse-function", strings.TrimSuffix(why, "."), config.AnnotationInject)
	case o.Annotations[config.AnnotationInject] == "false":
		return fmt.Sprintf("take off the annotation %s, or start it through rouse-function", config.AnnotationInject)
	}
	return "install what brings the function into any image (the component any-image), and set the annotation " + config.AnnotationRuntime + ", start it through rouse-function"
}
