package kn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

var (
	secrets     = resourceOf("secrets.v1.")
	deployments = resourceOf("deployments.v1.apps")
	configMaps  = resourceOf("configmaps.v1.")
	pods        = resourceOf("pods.v1.")
	nodes       = resourceOf("nodes.v1.")

	mutatingWebhooks = resourceOf("mutatingwebhookconfigurations.v1.admissionregistration.k8s.io")
	runtimeClasses   = resourceOf("runtimeclasses.v1.node.k8s.io")
	storageClasses   = resourceOf("storageclasses.v1.storage.k8s.io")

	services       = resourceOf("services.v1.serving.knative.dev")
	revisions      = resourceOf("revisions.v1.serving.knative.dev")
	podAutoscalers = resourceOf("podautoscalers.v1alpha1.autoscaling.internal.knative.dev")
)

// resourceOf parses NAME.VERSION.GROUP.
func resourceOf(text string) schema.GroupVersionResource {
	r, _ := schema.ParseResourceArg(text)
	return *r
}

type cluster struct {
	config *rest.Config
	http   *http.Client
	kube   kubernetes.Interface
	dyn    dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// namespace is the default for names; all: lists cover every namespace.
	namespace string
	all       bool
}

// accessFlags adds the flags that select the cluster, which are kn's.
func accessFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.String("kubeconfig", "", "kubectl configuration `file` (default: ~/.kube/config)")
	f.String("context", "", "`name` of the kubeconfig context to use")
	f.String("cluster", "", "`name` of the kubeconfig cluster to use")
	f.String("as", "", "`user` to impersonate for the operation")
	f.String("as-uid", "", "`uid` to impersonate for the operation")
	f.StringArray("as-group", nil, "`group` to impersonate for the operation (repeatable)")
}

func namespaceFlags(cmd *cobra.Command, lists bool) {
	cmd.Flags().StringP("namespace", "n", "", "the `namespace` to operate in (default: that of the context)")
	if lists {
		cmd.Flags().BoolP("all-namespaces", "A", false, "all namespaces")
	}
}

// connect finds the cluster that the flags, KUBECONFIG or the machine name. It sends nothing.
func connect(cmd *cobra.Command) (*cluster, error) {
	text := func(name string) string { v, _ := cmd.Flags().GetString(name); return v }
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if path := text("kubeconfig"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		rules.ExplicitPath = path
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: text("context")}
	overrides.Context.Cluster = text("cluster")
	overrides.Context.Namespace = text("namespace")
	overrides.AuthInfo.Impersonate = text("as")
	overrides.AuthInfo.ImpersonateUID = text("as-uid")
	overrides.AuthInfo.ImpersonateGroups, _ = cmd.Flags().GetStringArray("as-group")
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loaded.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no cluster is configured: set KUBECONFIG, or name a file with --kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	c, err := newCluster(config)
	if err != nil {
		return nil, err
	}
	if c.namespace, _, err = loaded.Namespace(); err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	c.all, _ = cmd.Flags().GetBool("all-namespaces")
	return c, nil
}

func newCluster(config *rest.Config) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "kn-rouse/" + verb.Version()
	config.ContentType = "application/json"
	config.QPS = -1 // the API server's own fairness is enough
	config.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	kube, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kube.Discovery()))
	return &cluster{config: config, http: client, kube: kube, dyn: dyn, mapper: mapper, namespace: metav1.NamespaceDefault}, nil
}

// scope returns the namespace for lists; empty: all.
func (c *cluster) scope() string {
	if c.all {
		return metav1.NamespaceAll
	}
	return c.namespace
}

// name parses NAME or NAMESPACE/NAME.
func (c *cluster) name(text string) api.FunctionName {
	f := api.FunctionName(text)
	if f.Name() == text {
		return api.NewFunctionName(c.namespace, text)
	}
	return f
}

func list[T any](ctx context.Context, c *cluster, r schema.GroupVersionResource, namespace, selector string) ([]T, error) {
	found, err := c.dyn.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, refusal(err, "list", r, namespace, "")
	}
	out := make([]T, len(found.Items))
	for i, u := range found.Items {
		if err := read(u, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func get[T any](ctx context.Context, c *cluster, r schema.GroupVersionResource, namespace, name string) (T, error) {
	var out T
	u, err := c.dyn.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return out, refusal(err, "get", r, namespace, name)
	}
	return out, read(*u, &out)
}

func read(u unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return fmt.Errorf("read %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}
