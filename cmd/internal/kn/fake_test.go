package kn_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/cmd/internal/kn"
)

// resources are the fake API server's: group/version, resource, kind, namespaced.
var resources = []struct {
	gv, name, kind string
	namespaced     bool
}{
	{"v1", "namespaces", "Namespace", false},
	{"v1", "pods", "Pod", true},
	{"v1", "secrets", "Secret", true},
	{"v1", "services", "Service", true},
	{"v1", "configmaps", "ConfigMap", true},
	{"v1", "persistentvolumeclaims", "PersistentVolumeClaim", true},
	{"v1", "serviceaccounts", "ServiceAccount", true},
	{"v1", "nodes", "Node", false},
	{"storage.k8s.io/v1", "storageclasses", "StorageClass", false},
	{"node.k8s.io/v1", "runtimeclasses", "RuntimeClass", false},
	{"apps/v1", "deployments", "Deployment", true},
	{"autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true},
	{"policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", true},
	{"networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", true},
	{"discovery.k8s.io/v1", "endpointslices", "EndpointSlice", true},
	{"coordination.k8s.io/v1", "leases", "Lease", true},
	{"admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false},
	{"admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false},
	{"admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false},
	{"rbac.authorization.k8s.io/v1", "roles", "Role", true},
	{"rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", true},
	{"rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", false},
	{"rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", false},
	{"serving.knative.dev/v1", "services", "Service", true},
	{"serving.knative.dev/v1", "revisions", "Revision", true},
	{"autoscaling.internal.knative.dev/v1alpha1", "podautoscalers", "PodAutoscaler", true},
	{"networking.internal.knative.dev/v1alpha1", "serverlessservices", "ServerlessService", true},
}

// fakeCluster is an API server that keeps what it is given: discovery, get, list, patch,
// delete, access reviews and the proxy to the autoscaler. It checks nothing.
type fakeCluster struct {
	t          *testing.T
	url        string
	kubeconfig string
	// admin answers behind the proxy; nil: the Service has no endpoints.
	admin http.Handler
	// front answers behind the proxy to the front door.
	front http.Handler
	// version is the API server's.
	version string
	// without are the API groups that it does not have; deny says what the person may not do.
	without []string
	deny    func(verb, resource, namespace string) bool
	// refuse returns admission's refusal of an object; empty: none.
	refuse func(kind, name string) string
	// changed is told of each change, before it is answered.
	changed func(verb, path string)
	// meanwhile runs before an update or a creation takes effect.
	meanwhile func()
	// created acts as a controller on a new object, before the answer.
	created func(o map[string]any)

	mu      sync.Mutex // guards what follows
	objects map[string]map[string]any
	log     []string // changes, in order
}

func newFakeCluster(t *testing.T) *fakeCluster {
	c := &fakeCluster{t: t, objects: map[string]map[string]any{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.url = s.URL
	c.version = "v1.36.1"
	c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	c.kubeconfigOf(s.URL)
	return c
}

// kubeconfigOf has the person's file name the server at url.
func (c *fakeCluster) kubeconfigOf(url string) {
	c.t.Helper()
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: person}}],
contexts: [{name: c, context: {cluster: c, user: u}}]}`, url)
	if err := os.WriteFile(c.kubeconfig, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// put adds objects, written as YAML.
func (c *fakeCluster) put(text string) {
	c.t.Helper()
	for _, doc := range strings.Split(text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			c.t.Fatalf("%v in\n%s", err, doc)
		}
		path, found := pathOf(o)
		if !found {
			c.t.Fatalf("no such kind:\n%s", doc)
		}
		c.mu.Lock()
		c.objects[path] = o
		c.mu.Unlock()
	}
}

// take removes objects whose path has the words.
func (c *fakeCluster) take(words string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for path := range c.objects {
		if strings.Contains(path, words) {
			delete(c.objects, path)
		}
	}
}

func (c *fakeCluster) object(path string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[path]
}

func (c *fakeCluster) changes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

func pathOf(o map[string]any) (string, bool) {
	for _, r := range resources {
		if r.gv != o["apiVersion"] || r.kind != o["kind"] {
			continue
		}
		path := root(r.gv)
		if r.namespaced {
			path += "/namespaces/" + nested(o, "metadata", "namespace")
		}
		return path + "/" + r.name + "/" + nested(o, "metadata", "name"), true
	}
	return "", false
}

func root(gv string) string {
	if gv == "v1" {
		return "/api/v1"
	}
	return "/apis/" + gv
}

func nested(o map[string]any, keys ...string) string {
	var v any = o
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	s, _ := v.(string)
	return s
}

func (c *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const proxy = "/api/v1/namespaces/knative-serving/services/http:rouse-autoscaler:http/proxy"
	switch {
	case c.front != nil && strings.HasPrefix(r.URL.Path, strings.Replace(proxy, "rouse-autoscaler", "rouse", 1)):
		if c.denies(w, "create", "services/proxy of the front door", "") {
			return
		}
		_, path, _ := strings.Cut(r.URL.Path, "/proxy")
		r = r.Clone(r.Context())
		r.URL.Path = path
		r.Header.Del("Authorization")
		c.front.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, proxy):
		c.serveProxy(w, r, strings.TrimPrefix(r.URL.Path, proxy))
	case r.URL.Path == "/version":
		answer(w, 200, map[string]any{"gitVersion": c.version})
	case r.URL.Path == "/api":
		answer(w, 200, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case r.URL.Path == "/apis":
		answer(w, 200, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": c.groups()})
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		c.review(w, r)
	default:
		if gv, rest, found := c.split(r.URL.Path); found && rest == "" {
			answer(w, 200, map[string]any{"kind": "APIResourceList", "groupVersion": gv, "resources": c.known(gv)})
		} else if found {
			c.serveObjects(w, r, gv, strings.Split(strings.Trim(rest, "/"), "/"))
		} else {
			status(w, 404, "NotFound", "the server could not find the requested resource", "")
		}
	}
}

func (c *fakeCluster) has(gv string) bool {
	return !slices.ContainsFunc(c.without, func(g string) bool { return strings.HasPrefix(gv, g) })
}

func (c *fakeCluster) split(path string) (gv, rest string, found bool) {
	for _, r := range resources {
		if after, ok := strings.CutPrefix(path, root(r.gv)); ok && c.has(r.gv) && (after == "" || after[0] == '/') {
			return r.gv, after, true
		}
	}
	return "", "", false
}

func (c *fakeCluster) groups() []map[string]any {
	var out []map[string]any
	var seen []string
	for _, r := range resources {
		group, version, found := strings.Cut(r.gv, "/")
		if !found || slices.Contains(seen, r.gv) || !c.has(r.gv) {
			continue
		}
		seen = append(seen, r.gv)
		v := map[string]any{"groupVersion": r.gv, "version": version}
		out = append(out, map[string]any{"name": group, "versions": []any{v}, "preferredVersion": v})
	}
	return out
}

func (c *fakeCluster) known(gv string) []map[string]any {
	out := []map[string]any{}
	for _, r := range resources {
		if r.gv == gv {
			out = append(out, map[string]any{"name": r.name, "kind": r.kind, "namespaced": r.namespaced, "verbs": []string{"get", "list", "patch", "delete"}})
		}
	}
	return out
}

func (c *fakeCluster) denies(w http.ResponseWriter, verb, resource, namespace string) bool {
	if c.deny == nil || !c.deny(verb, resource, namespace) {
		return false
	}
	status(w, 403, "Forbidden", fmt.Sprintf("%s is forbidden: User \"jo\" cannot %s resource", resource, verb), resource)
	return true
}

func (c *fakeCluster) serveProxy(w http.ResponseWriter, r *http.Request, path string) {
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create"}[r.Method]
	switch {
	case c.denies(w, verb, "services/proxy", "knative-serving"):
	case c.object("/api/v1/namespaces/knative-serving/services/rouse-autoscaler") == nil:
		status(w, 404, "NotFound", `services "rouse-autoscaler" not found`, "services")
	case c.admin == nil:
		status(w, 503, "ServiceUnavailable", `no endpoints available for service "http:rouse-autoscaler:http"`, "")
	default:
		r = r.Clone(r.Context())
		r.URL.Path = path
		r.Header.Del("Authorization") // the real one keeps it
		c.admin.ServeHTTP(w, r)
	}
}

func (c *fakeCluster) review(w http.ResponseWriter, r *http.Request) {
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		c.t.Errorf("access review: %v", err)
		return
	}
	at := func(key string) string { return nested(in, "spec", "resourceAttributes", key) }
	allowed := c.deny == nil || !c.deny(at("verb"), at("resource"), at("namespace"))
	in["status"] = map[string]any{"allowed": allowed}
	answer(w, 201, in)
}

// serveObjects answers for namespaces/NS/RESOURCE[/NAME] or RESOURCE[/NAME].
func (c *fakeCluster) serveObjects(w http.ResponseWriter, r *http.Request, gv string, parts []string) {
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodPost: "create", http.MethodDelete: "delete"}[r.Method]
	if len(parts) == 1 && verb == "get" {
		verb = "list"
	}
	if c.denies(w, verb, parts[0], namespace) {
		return
	}
	switch verb {
	case "list":
		c.list(w, r, gv, namespace, parts[0])
	case "get":
		o := c.object(r.URL.Path)
		if o == nil {
			status(w, 404, "NotFound", fmt.Sprintf("%s %q not found", parts[0], parts[1]), parts[0])
			return
		}
		answer(w, 200, o)
	case "patch":
		c.patch(w, r, parts[1])
	case "update", "create":
		c.write(w, r, verb)
	case "delete":
		if c.object(r.URL.Path) == nil {
			status(w, 404, "NotFound", fmt.Sprintf("%s %q not found", parts[0], parts[1]), parts[0])
			return
		}
		c.mu.Lock()
		delete(c.objects, r.URL.Path)
		c.mu.Unlock()
		c.note("delete", r.URL.Path)
		answer(w, 200, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
}

func (c *fakeCluster) list(w http.ResponseWriter, r *http.Request, gv, namespace, resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	items := []map[string]any{}
	kind := ""
	for _, k := range resources {
		if k.gv == gv && k.name == resource {
			kind = k.kind
		}
	}
	for path, o := range c.objects {
		at, _ := pathOf(o)
		if at != path || !strings.HasPrefix(path, root(gv)+"/") || o["kind"] != kind || o["apiVersion"] != gv {
			continue
		}
		if namespace != "" && nested(o, "metadata", "namespace") != namespace {
			continue
		}
		if key, value, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "="); key != "" && nested(o, "metadata", "labels", key) != value {
			continue
		}
		items = append(items, o)
	}
	answer(w, 200, map[string]any{"kind": kind + "List", "apiVersion": gv, "items": items})
}

func (c *fakeCluster) patch(w http.ResponseWriter, r *http.Request, name string) {
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		status(w, 400, "BadRequest", "patch: "+err.Error(), "")
		return
	}
	if c.refuse != nil {
		if message := c.refuse(fmt.Sprint(in["kind"]), name); message != "" {
			status(w, 400, "BadRequest", message, "")
			return
		}
	}
	if r.URL.Query().Get("dryRun") != "" {
		answer(w, 200, in)
		return
	}
	c.mu.Lock()
	old := c.objects[r.URL.Path]
	if old == nil && !strings.Contains(r.Header.Get("Content-Type"), "apply") {
		c.mu.Unlock()
		status(w, 404, "NotFound", name+" not found", "")
		return
	}
	if old == nil {
		old = map[string]any{}
	}
	now := merge(old, in)
	c.objects[r.URL.Path] = now
	c.mu.Unlock()
	c.note("patch", r.URL.Path)
	answer(w, 200, now)
}

// write creates an object, or replaces one that nobody has replaced since it was read.
func (c *fakeCluster) write(w http.ResponseWriter, r *http.Request, verb string) {
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		status(w, 400, "BadRequest", verb+": "+err.Error(), "")
		return
	}
	path := r.URL.Path
	if verb == "create" {
		path += "/" + nested(in, "metadata", "name")
	}
	if c.meanwhile != nil {
		c.meanwhile()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.objects[path]
	switch version := nested(old, "metadata", "resourceVersion"); {
	case verb == "create" && old != nil:
		status(w, 409, "AlreadyExists", path+" already exists", "")
	case verb == "update" && old == nil:
		status(w, 404, "NotFound", path+" not found", "")
	case verb == "update" && version != nested(in, "metadata", "resourceVersion"):
		status(w, 409, "Conflict", path+": the object has been modified", "")
	case r.URL.Query().Get("dryRun") != "":
		answer(w, 200, in)
	default:
		if c.created != nil && verb == "create" {
			c.created(in)
		}
		meta, _ := in["metadata"].(map[string]any)
		meta["resourceVersion"] = version + "1"
		c.objects[path] = in
		answer(w, 200, in)
	}
}

// merge is RFC 7386's merge patch, into a copy.
func merge(old, in map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range old {
		out[k] = v
	}
	for k, v := range in {
		below, isMap := v.(map[string]any)
		was, _ := out[k].(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case isMap:
			out[k] = merge(was, below)
		default:
			out[k] = v
		}
	}
	return out
}

func (c *fakeCluster) note(verb, path string) {
	c.mu.Lock()
	c.log = append(c.log, verb+" "+path[strings.LastIndex(path[:strings.LastIndex(path, "/")], "/")+1:])
	c.mu.Unlock()
	if c.changed != nil {
		c.changed(verb, path)
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client has left
}

func status(w http.ResponseWriter, code int, reason, message, kind string) {
	answer(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message, "details": map[string]any{"kind": kind}})
}

// stockKnative has the objects of Knative Serving that Rouse reads.
const stockKnative = `apiVersion: apps/v1
kind: Deployment
metadata: {name: activator, namespace: knative-serving, labels: {app.kubernetes.io/version: 1.24.1}}
---
apiVersion: v1
kind: Pod
metadata: {name: activator-1, namespace: knative-serving, labels: {app: activator}}
status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: activator-service, namespace: knative-serving}
spec: {selector: {app: activator}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-autoscaler, namespace: knative-serving}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-deployment, namespace: knative-serving}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-defaults, namespace: knative-serving}`

// run runs a command of the plugin.
func (c *fakeCluster) run(args ...string) (string, error) {
	var out bytes.Buffer
	err := kn.Execute(c.t.Context(), append(args, "--kubeconfig", c.kubeconfig), &out, &out)
	return out.String(), err
}

// fails runs a command that must fail with an error that has the words.
func (c *fakeCluster) fails(words []string, args ...string) {
	c.t.Helper()
	out, err := c.run(args...)
	if err == nil {
		c.t.Fatalf("kn rouse %s succeeded, want an error; it printed:\n%s", strings.Join(args, " "), out)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			c.t.Errorf("kn rouse %s: error %q, want %q in it", strings.Join(args, " "), err, w)
		}
	}
}
