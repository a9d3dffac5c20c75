package knative

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func (pr *pairs) raiseClaims(ctx context.Context, r *revision, n int) {
	d, err := pr.deployment(r.name)
	pr.mu.Lock()
	if err == nil {
		r.adoptScale(d)
		err = pr.scaler.awaitScale(ctx, r, func() bool { return !r.scalingDown() })
	}
	r.raising -= n
	if err == nil {
		r.want += n
	}
	limited, cancel := context.WithTimeout(ctx, r.spec.StartTimeout)
	defer cancel()
	pr.mu.Unlock()
	if err == nil {
		pr.changed(r.name)
		if err = pr.scaler.setScale(ctx, r, d); err == nil {
			err = pr.scaler.awaitCreated(limited, r, func() bool { return r.livePods() >= r.want || pr.revisions[r.name] != r })
		}
		if err != nil {
			pr.mu.Lock()
			r.want = max(r.livePods(), r.want-n)
			pr.mu.Unlock()
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			_ = pr.scaler.setScale(undo, r, d) // the reconciler keeps trying
		}
	}
	if err == nil || ctx.Err() != nil {
		pr.pairsDue.Ring()
		return
	}
	pr.mu.Lock()
	r.trouble = &trouble{"StartFailed", err.Error()}
	r.failWants(err)
	pr.pairsDue.Ring()
	pr.mu.Unlock()
	pr.changed(r.name)
}

func (pr *pairs) beginRelease(r *revision, requester *pod) {
	if requester == nil || requester.pair.released {
		return
	}
	requester.pair.released = true
	if requester.ended || r == nil {
		pr.startCall(func(ctx context.Context) {
			pr.callRelease(ctx, requester)
			pr.scaler.deletePod(ctx, requester, claimGrace)
			pr.pairsDue.Ring()
		})
		return
	}
	requester.stopping = true // no want takes it from now on
	pr.startCall(func(ctx context.Context) { pr.releaseRequester(ctx, r, requester) })
}

func (pr *pairs) releaseRequester(ctx context.Context, r *revision, requester *pod) {
	pr.callRelease(ctx, requester)
	err := pr.lowerClaims(ctx, r, requester)
	if err == nil {
		pr.pairsDue.Ring()
		return
	}
	if ctx.Err() == nil {
		pr.log.Warn("a claim of GPUs can't be given back yet", "requester", requester.id, "error", err)
	}
	pr.mu.Lock()
	requester.pair.released, requester.stopping = false, false
	requester.pair.since, requester.pair.spent = time.Now(), false // retried once it has been idle again
	pr.mu.Unlock()
	pr.pairsDue.Ring()
}

// lowerClaims has the Deployment delete the given pod.
func (pr *pairs) lowerClaims(ctx context.Context, r *revision, requester *pod) error {
	d, err := pr.deployment(r.name)
	if err != nil {
		if apierrors.IsNotFound(err) { // deleted with its service
			return nil
		}
		return err
	}
	pr.mu.Lock()
	r.adoptScale(d)
	if err := pr.scaler.awaitScale(ctx, r, func() bool { return len(r.pods) >= r.want || requester.ended }); err != nil || requester.ended {
		pr.mu.Unlock()
		return err
	}
	r.lowerFor(requester)
	pr.scaler.updateCosts(r)
	pr.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, createTimeout, fmt.Errorf("it takes longer than %s", createTimeout))
	defer cancel()
	// At once, before the ReplicaSet deletes it: that would wait half a minute for the queue-proxy.
	err = pr.scaler.deleteByScale(ctx, r, requester, d, true)
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if err != nil && requester.stopping && !requester.ended {
		r.want++ // the next try lowers it again
	}
	return err
}

func (pr *pairs) callRelease(ctx context.Context, requester *pod) {
	call, cancel := context.WithTimeout(ctx, spiTimeout)
	defer cancel()
	if err := pr.callRequester(call, requester, "POST", spiRelease, nil); err != nil {
		pr.log.Debug("a requester does not hear that its claim may go", "requester", requester.id, "error", err)
	}
}
