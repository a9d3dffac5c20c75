package knative

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// raise raises the scale of a function's Deployment by n claims.
func (f *Fleet) raise(ctx context.Context, r *revision, n int) {
	d, err := f.deployment(r.name)
	f.mu.Lock()
	if err == nil {
		f.takeOver(r, d)
		err = f.settle(ctx, r, func() bool { return !r.falling() })
	}
	r.raising -= n
	if err == nil {
		r.want += n
	}
	f.mu.Unlock()
	if err == nil {
		f.changed(r.name)
		if err = f.setScale(ctx, r, d); err == nil {
			err = f.awaitRequesters(ctx, r)
		}
		if err != nil {
			f.mu.Lock()
			r.want = max(r.live(), r.want-n)
			f.mu.Unlock()
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			_ = f.setScale(undo, r, d) // the reconciler keeps trying
		}
	}
	if err == nil || ctx.Err() != nil {
		f.pairs.Ring()
		return
	}
	f.mu.Lock()
	r.trouble = &trouble{"StartFailed", err.Error()}
	f.failWants(r, err)
	f.mu.Unlock()
	f.changed(r.name)
}

// awaitRequesters returns when the Deployment has created its pods, with an error if it can't.
func (f *Fleet) awaitRequesters(ctx context.Context, r *revision) error {
	ctx, stop := f.unlessRefused(ctx, r)
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	there := func() bool { return r.live() >= r.want || f.revisions[r.name] != r }
	if err := f.settle(ctx, r, there); err != nil || there() {
		return err
	}
	return f.errNoPod(r)
}

// beginRelease begins to release a requester. The caller holds f.mu.
func (f *Fleet) beginRelease(run *runner, r *revision, requester *pod) {
	if requester == nil || requester.pair.released {
		return
	}
	requester.pair.released = true
	if requester.ended || r == nil {
		run.calls.Go(func() { f.letGo(run.ctx, requester) })
		return
	}
	requester.stopping = true // no want takes it from now on
	run.calls.Go(func() { f.release(run.ctx, r, requester) })
}

// release releases a requester, and lowers the scale by it.
func (f *Fleet) release(ctx context.Context, r *revision, requester *pod) {
	f.tellReleased(ctx, requester)
	err := f.lower(ctx, r, requester)
	if err == nil {
		f.pairs.Ring()
		return
	}
	if ctx.Err() == nil {
		f.log.Warn("a claim of GPUs can't be given back yet", "requester", requester.id, "error", err)
	}
	f.mu.Lock()
	requester.pair.released, requester.stopping = false, false
	requester.pair.since, requester.pair.spent = time.Now(), false // retried once it has been idle again
	f.mu.Unlock()
	f.pairs.Ring()
}

// lower has the Deployment delete the given pod.
func (f *Fleet) lower(ctx context.Context, r *revision, requester *pod) error {
	d, err := f.deployment(r.name)
	if err != nil {
		if apierrors.IsNotFound(err) { // it was deleted with its service
			return nil
		}
		return err
	}
	f.mu.Lock()
	f.takeOver(r, d)
	if err := f.settle(ctx, r, func() bool { return len(r.pods) >= r.want || requester.ended }); err != nil || requester.ended {
		f.mu.Unlock()
		return err
	}
	r.want = max(0, r.want-1)
	f.weigh(r)
	select {
	case <-requester.swapped: // of an earlier try
	default:
	}
	f.mu.Unlock()
	if err := f.mark(ctx, requester); err != nil {
		f.log.Debug("a pod's deletion cost could not be written", "pod", requester.id, "error", err)
	}
	if err := f.setScale(ctx, r, d); err != nil {
		return err
	}
	// Before the ReplicaSet does it: its deletion waits for the queue-proxy's half minute, and a second deletion would
	// not shorten that.
	f.deletePod(ctx, requester, claimGrace)
	limit := time.NewTimer(f.cfg.CreateTimeout)
	defer limit.Stop()
	select {
	case <-requester.gone:
		return nil
	case <-requester.swapped:
		return errors.New("another pod of the revision was taken by Kubernetes instead")
	case <-limit.C:
		return fmt.Errorf("its pod is not deleted %s after the scale was lowered", f.cfg.CreateTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// letGo tells a requester that others are deleting that its claim is no longer used.
func (f *Fleet) letGo(ctx context.Context, requester *pod) {
	f.tellReleased(ctx, requester)
	f.deletePod(ctx, requester, claimGrace)
	f.pairs.Ring()
}

func (f *Fleet) tellReleased(ctx context.Context, requester *pod) {
	call, cancel := context.WithTimeout(ctx, spiTimeout)
	defer cancel()
	if err := f.spi(call, requester, "POST", spiRelease, nil); err != nil {
		f.log.Debug("a requester does not hear that its claim may go", "requester", requester.id, "error", err)
	}
}
