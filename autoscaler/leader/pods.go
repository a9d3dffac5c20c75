package leader

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/server"
	"github.com/rouse-dev/rouse/internal/bell"
)

// activatorPods follows the pods of activators, and of agents, which front doors in other clusters call.
type activatorPods struct {
	kube kubernetes.Interface
	set  func([]server.Activator)
	bell bell.Bell // rung by the watch, received by run
}

func newActivatorPods(kube kubernetes.Interface, set func([]server.Activator)) *activatorPods {
	return &activatorPods{kube: kube, set: set, bell: bell.New()}
}

func (a *activatorPods) run(ctx context.Context) error {
	f := informers.NewSharedInformerFactoryWithOptions(a.kube, 0, informers.WithNamespace(control.SystemNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = "app in (" + control.ActivatorName + "," + control.AgentName + ")"
		}))
	pods := f.Core().V1().Pods()
	_, err := pods.Informer().AddEventHandler(rings(a.bell))
	if err != nil {
		return fmt.Errorf("watch the activators' pods: %w", err)
	}
	f.Start(ctx.Done())
	defer f.Shutdown()
	for {
		select {
		case <-a.bell:
		case <-ctx.Done():
			return nil
		}
		list, err := pods.Lister().List(labels.Everything())
		if err != nil {
			return fmt.Errorf("list the activators' pods: %w", err)
		}
		var all []server.Activator
		for _, p := range list {
			if one, found := activator(p); found {
				all = append(all, one)
			}
		}
		a.set(all)
	}
}

// A terminating pod still counts: it finishes its requests.
func activator(p *corev1.Pod) (server.Activator, bool) {
	if p.Status.PodIP == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return server.Activator{}, false
	}
	restarts := 0
	for _, c := range p.Status.ContainerStatuses {
		restarts += int(c.RestartCount)
	}
	return server.Activator{
		Key:      string(p.UID) + "/" + strconv.Itoa(restarts),
		Name:     p.Name,
		Endpoint: api.Endpoint("http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(control.ActivatorPort))),
		Ready:    slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }),
	}, true
}
