package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/rouse-dev/rouse/api/control"
)

// A leader without the API server stops after renewWithin, another one leads after leaseLife: never two at once while
// clocks run evenly.
const (
	leaseLife   = 10 * time.Second
	renewWithin = 7 * time.Second
	renewEvery  = 500 * time.Millisecond
	// stopWithin is for the parts of a leader that lost the lease.
	stopWithin = 2 * time.Second
)

// errLost ends a process that no longer leads.
var errLost = errors.New("the lease " + control.SystemNamespace + "/" + control.AutoscalerName + " was lost: another process leads, or the API server could not be reached")

func (p *process) elect(ctx context.Context) error {
	if err := label(ctx, p.kube, p.cfg.Pod, false); err != nil { // set by an earlier process in the same pod
		p.log.Warn("the pod's label of the leader can't be removed", "error", err)
	}
	err := stand(ctx, p.kube, p.cfg.Pod, func() { p.electing.Store(true) }, func(ctx context.Context, term uint64) error {
		p.log.Info("this process leads", "pod", p.cfg.Pod, "term", term)
		p.leading.Store(true)
		defer p.leading.Store(false)
		return p.lead(ctx, term)
	})
	if err == nil && ctx.Err() == nil {
		return errors.New("the election has ended")
	}
	return err
}

func newElector(lock resourcelock.Interface, elected func()) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		Name:          control.AutoscalerName,
		LeaseDuration: leaseLife, RenewDeadline: renewWithin, RetryPeriod: renewEvery,
		// Its own release precedes the report of the loss, and blocks as long as the API server does not answer.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { elected() },
			OnStoppedLeading: func() {},
		},
	})
}

// stand waits until identity holds the lease and calls lead with a context that ends when the lease is lost. It releases
// the lease after lead has returned. It returns lead's error, or errLost.
func stand(ctx context.Context, kube kubernetes.Interface, identity string, standing func(), lead func(ctx context.Context, term uint64) error) error {
	held, letGo := context.WithCancel(context.WithoutCancel(ctx))
	defer letGo()
	elected := make(chan struct{}) // closed by the elector
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: control.AutoscalerName},
		Client:     kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	elector, err := newElector(lock, func() { close(elected) })
	if err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	if err := renounce(ctx, lock); err != nil {
		return nil // ctx has ended
	}
	ended := make(chan struct{}) // closed when the elector is done
	go func() { defer close(ended); elector.Run(held) }()
	standing()
	select {
	case <-elected:
	case <-ctx.Done():
		letGo()
		<-ended
		return release(lock) // it may have been elected just now
	}
	leading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1) // sent to once, by the leader
	go func() {
		term, err := termOf(leading, kube, identity)
		if err == nil {
			err = lead(leading, term)
		} else if ctx.Err() != nil {
			err = nil
		}
		done <- err
	}()
	select {
	case err := <-done:
		letGo()
		<-ended
		return errors.Join(err, release(lock))
	case <-ended:
		stop(errLost)
	}
	select {
	case err := <-done:
		return errors.Join(errLost, err)
	case <-time.After(stopWithin): // the process ends in any case
		return errLost
	}
}

// renounce releases a lease that an earlier process in the same pod has left: else its term would not end. It retries
// until the API server answers; an error says that ctx has ended.
func renounce(ctx context.Context, lock *resourcelock.LeaseLock) error {
	return wait.PollUntilContextCancel(ctx, renewEvery, true, func(ctx context.Context) (bool, error) {
		record, _, err := lock.Get(ctx)
		if err == nil && record.HolderIdentity == lock.Identity() && release(lock) == nil {
			record, _, err = lock.Get(ctx) // check the result
		}
		return apierrors.IsNotFound(err) || err == nil && record.HolderIdentity != lock.Identity(), nil
	})
}

// termOf returns a term higher than every earlier lease's. The count of transitions restarts if the lease is deleted, so
// the creation time in seconds is added. It retries until the lease is lost.
func termOf(ctx context.Context, kube kubernetes.Interface, identity string) (term uint64, err error) {
	err = wait.PollUntilContextCancel(ctx, renewEvery, true, func(ctx context.Context) (bool, error) {
		lease, err := kube.CoordinationV1().Leases(control.SystemNamespace).Get(ctx, control.AutoscalerName, metav1.GetOptions{})
		if err != nil {
			return false, nil
		}
		if ptr.Deref(lease.Spec.HolderIdentity, "") != identity {
			return false, errLost
		}
		term = uint64(max(0, lease.CreationTimestamp.Unix())) + uint64(max(0, ptr.Deref(lease.Spec.LeaseTransitions, 0))) + 1
		return true, nil
	})
	return term, err
}

// release returns nil if the API server can't be reached: the lease expires by itself.
func release(lock *resourcelock.LeaseLock) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err != nil || record.HolderIdentity != lock.Identity() {
		return nil
	}
	now := metav1.Now()
	record.HolderIdentity, record.LeaseDurationSeconds, record.AcquireTime, record.RenewTime = "", 1, now, now
	if err := lock.Update(ctx, *record); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("let the lease go: %w", err)
	}
	return nil
}

func label(ctx context.Context, kube kubernetes.Interface, pod string, leads bool) error {
	value := "null"
	if leads {
		value = `"true"`
	}
	body := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %s}}}`, control.LabelLeader, value)
	if _, err := kube.CoreV1().Pods(control.SystemNamespace).Patch(ctx, pod, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label pod %s/%s: %w", control.SystemNamespace, pod, err)
	}
	return nil
}

// claim makes this pod the only one that the autoscaler's Service selects. It retries until ctx ends, and returns nil.
func (p *process) claim(ctx context.Context) error {
	for failures := 0; ; failures++ {
		err := p.claimOnce(ctx)
		if err == nil {
			return nil
		}
		if failures == 0 && ctx.Err() == nil {
			p.log.Warn("the Service does not select this pod alone yet; trying on", "service", control.AutoscalerName, "error", err)
		}
		select {
		case <-time.After(min(5*time.Second, 100*time.Millisecond<<min(failures, 10))):
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *process) claimOnce(ctx context.Context) error {
	if err := label(ctx, p.kube, p.cfg.Pod, true); err != nil {
		return err
	}
	others, err := p.kube.CoreV1().Pods(control.SystemNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app=" + control.AutoscalerName + "," + control.LabelLeader + "=true"})
	if err != nil {
		return fmt.Errorf("list the autoscaler's pods: %w", err)
	}
	var errs []error
	for _, o := range others.Items {
		if o.Name != p.cfg.Pod {
			errs = append(errs, label(ctx, p.kube, o.Name, false))
		}
	}
	return errors.Join(errs...)
}
