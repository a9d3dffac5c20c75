package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	networking "knative.dev/networking/pkg/apis/networking/v1alpha1"
	clientset "knative.dev/networking/pkg/client/clientset/versioned"
	networkinginformers "knative.dev/networking/pkg/client/informers/externalversions"
	listers "knative.dev/networking/pkg/client/listers/networking/v1alpha1"
)

const classAnnotation = "networking.knative.dev/ingress.class"

type controller struct {
	class, name string
	log         *slog.Logger
	client      clientset.Interface
	kube        informers.SharedInformerFactory
	knative     networkinginformers.SharedInformerFactory
	services    corelisters.ServiceLister
	endpoints   corelisters.EndpointsLister
	ingresses   listers.IngressLister
	changed     workqueue.TypedRateLimitingInterface[string]
	table       atomic.Pointer[table] // never nil
}

func newController(kube kubernetes.Interface, client clientset.Interface, class, name string, log *slog.Logger) *controller {
	c := &controller{
		class: class, name: name, log: log, client: client,
		kube:    informers.NewSharedInformerFactory(kube, 0),
		knative: networkinginformers.NewSharedInformerFactory(client, 0),
		changed: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 2*time.Second)),
	}
	c.services = c.kube.Core().V1().Services().Lister()
	c.endpoints = c.kube.Core().V1().Endpoints().Lister()
	c.ingresses = c.knative.Networking().V1alpha1().Ingresses().Lister()
	c.table.Store(&table{})
	return c
}

// start returns when the first table can be made. Its goroutines end with ctx.
func (c *controller) start(ctx context.Context) error {
	add := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			c.changed.Add(key)
		}
	}
	_, err := c.knative.Networking().V1alpha1().Ingresses().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) }, DeleteFunc: add,
	})
	if err != nil {
		return fmt.Errorf("follow ingresses: %w", err)
	}
	// The factories only run informers that were asked for.
	c.kube.Core().V1().Services().Informer()
	c.kube.Core().V1().Endpoints().Informer()
	c.kube.Start(ctx.Done())
	c.knative.Start(ctx.Done())
	for kind, ok := range c.kube.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("read all objects of %v: %w", kind, context.Cause(ctx))
		}
	}
	for kind, ok := range c.knative.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("read all objects of %v: %w", kind, context.Cause(ctx))
		}
	}
	context.AfterFunc(ctx, c.changed.ShutDown)
	go c.follow(ctx)
	return nil
}

func (c *controller) follow(ctx context.Context) {
	for {
		key, end := c.changed.Get()
		if end {
			return
		}
		if err := errors.Join(c.rebuild(), c.mark(ctx, key)); err != nil {
			c.log.Warn("an ingress is not marked yet", "ingress", key, "error", err)
			c.changed.AddRateLimited(key)
		} else {
			c.changed.Forget(key)
		}
		c.changed.Done(key)
	}
}

func (c *controller) mine(i *networking.Ingress) bool {
	return i.DeletionTimestamp == nil && i.Annotations[classAnnotation] == c.class
}

func (c *controller) rebuild() error {
	all, err := c.ingresses.List(labels.Everything())
	if err != nil {
		return err
	}
	var served []*networking.Ingress
	for _, i := range all {
		if c.mine(i) {
			served = append(served, i)
		}
	}
	t := newTable(served)
	c.table.Store(&t)
	return nil
}

// mark says in an ingress's status that it is served.
func (c *controller) mark(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	ingress, err := c.ingresses.Ingresses(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !c.mine(ingress) || ingress.Status.ObservedGeneration == ingress.Generation && ingress.IsReady() {
		return nil
	}
	ingress = ingress.DeepCopy() // the informer's object is shared
	ingress.Status.InitializeConditions()
	ingress.Status.MarkNetworkConfigured()
	at := []networking.LoadBalancerIngressStatus{{DomainInternal: c.name}}
	ingress.Status.MarkLoadBalancerReady(at, at)
	ingress.Status.ObservedGeneration = ingress.Generation
	_, err = c.client.NetworkingV1alpha1().Ingresses(namespace).UpdateStatus(ctx, ingress, meta.UpdateOptions{})
	return err
}
