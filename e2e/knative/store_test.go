package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/e2e/cluster"
	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// storing is the default with the component store, on a volume that the test has made, small and quick to be ready.
const storing = `resources: [%s]
components: [%s]
patches:
  - target: {kind: Deployment}
    patch: |
      - {op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 10m}
      - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/periodSeconds, value: 1}
  - target: {kind: PersistentVolumeClaim, name: rouse-store}
    patch: |
      - {op: add, path: /spec/storageClassName, value: ""}
`

// volume is a folder of the node as the volume of that claim, and of no other.
const volume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: rouse-store}
spec:
  capacity: {storage: 20Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: knative-serving, name: rouse-store}
  hostPath: {path: %s, type: Directory}
`

// TestAStoreInACluster has one activator keep what clients leave, over the sudden end and the replacement of its pod. It runs alone: the activators are
// replaced by that one.
func TestAStoreInACluster(t *testing.T) {
	c := rouse(t)
	f := create(t, "stored", functionImage, lasting)
	withStore(t, c)
	keepsWhatIsLeft(t, f, func() {
		kubectl(t, c, "-n", "knative-serving", "delete", "pod", "-l", "app=rouse-activator", "--grace-period=1", "--timeout=3m")
	})
}

// TestABucketInACluster has all activators keep what clients leave in one bucket of a real S3 service on this machine, over the sudden end of one of them.
func TestABucketInACluster(t *testing.T) {
	c := rouse(t)
	f := create(t, "in-a-bucket", functionImage, lasting)
	service := s3test.GatewayAt(t, cluster.HostIP)
	secret := []string{"-n", "knative-serving", "create", "secret", "generic", "rouse-store", "--from-literal=ROUSE_STORE=s3://bucket/rouse", "--from-literal=AWS_ENDPOINT_URL=" + service.Endpoint,
		"--from-literal=AWS_ACCESS_KEY_ID=" + service.AccessKey, "--from-literal=AWS_SECRET_ACCESS_KEY=" + service.SecretKey}
	kubectl(t, c, "-n", "knative-serving", "delete", "secret", "rouse-store", "--ignore-not-found") // of a run that was killed
	kubectl(t, c, secret...)
	again := func() {
		kubectl(t, c, "-n", "knative-serving", "rollout", "restart", "deployment/rouse-activator")
		kubectl(t, c, "-n", "knative-serving", "rollout", "status", "deployment/rouse-activator", "--timeout=180s")
	}
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, c)
		}
		kubectl(t, c, "-n", "knative-serving", "delete", "secret", "rouse-store")
		again()
	})
	again()
	eventually(t, "there are two activators", func() string {
		if n := len(pods(t, c, "app=rouse-activator", "knative-serving")); n != 2 {
			return fmt.Sprintf("%d activators", n)
		}
		return ""
	})
	keepsWhatIsLeft(t, f, func() {
		kill(t, c, pods(t, c, "app=rouse-activator", "knative-serving")[0].Metadata.Name)
	})
}

// keepsWhatIsLeft leaves a response and a batch, ends an activator in the middle of the batch, and finds both again.
func keepsWhatIsLeft(t *testing.T, f *function, end func()) {
	t.Helper()
	c, client := f.c, "client-of-"+f.name
	_, _ = c.Kn(t.Context(), "rouse", "keys", "revoke", client) // of a run that was killed; usually there is none
	key := []string{"Authorization", "Bearer " + makeKey(t, f, client, "--tenant", "stored")}
	t.Cleanup(func() { _, _ = c.Kn(context.WithoutCancel(t.Context()), "rouse", "keys", "revoke", client) })
	ask := func(path string, body any, header ...string) (status int, object map[string]any) {
		t.Helper()
		eventually(t, path, func() string {
			a, err := call(t.Context(), c, frontHost, path, body, append(header, key...)...)
			if err != nil || a.status >= http.StatusInternalServerError || a.status == http.StatusUnauthorized { // of the ingress, while there is no activator; the key is not known yet
				return fmt.Sprintf("got %d %s (%v)", a.status, a.body, err)
			}
			status, object = a.status, nil
			_ = json.Unmarshal([]byte(a.body), &object) // results are several
			return ""
		})
		return status, object
	}
	_, response := ask("/v1/responses", map[string]any{"model": f.name, "input": "echo red", "store": true, "temperature": 0})
	id, _ := response["id"].(string)
	if response["status"] != "completed" || id == "" {
		t.Fatalf("the response is %v", response)
	}
	requests := make([]map[string]any, 50)
	for k := range requests {
		requests[k] = map[string]any{"custom_id": fmt.Sprint("id-", k), "params": chat(f.name, "blue")}
	}
	_, made := ask("/v1/messages/batches", map[string]any{"requests": requests}, "X-Request-Timeout", "10m")
	batch, _ := made["id"].(string)
	if batch == "" {
		t.Fatalf("the batch is %v", made)
	}
	end() // in the middle of what it does
	eventually(t, "the batch goes on", func() string {
		_, b := ask("/v1/messages/batches/"+batch, nil)
		counts, _ := b["request_counts"].(map[string]any)
		if b["processing_status"] != "ended" || counts["succeeded"] != float64(len(requests)) {
			return fmt.Sprint("it is ", b)
		}
		return ""
	})
	if _, again := ask("/v1/responses/"+id, nil); again["id"] != id || again["status"] != "completed" {
		t.Errorf("after that the response is %v", again)
	}
	if _, next := ask("/v1/responses", map[string]any{"model": f.name, "input": "echo blue", "previous_response_id": id, "temperature": 0}); next["previous_response_id"] != id || next["status"] != "completed" {
		t.Errorf("what goes on from it is %v", next)
	}
	if a, err := call(t.Context(), c, frontHost, "/v1/responses/"+id, nil); err != nil || a.status != http.StatusUnauthorized {
		t.Errorf("without a key it is %d %s (%v)", a.status, a.body, err)
	}
}

// withStore replaces the activators by one with a store, until the test ends.
func withStore(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	disk, err := os.MkdirTemp("", "rouse-store-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(disk, 0o777); err != nil { // the pod's user is another, and kubelets change no owner of such a volume
		t.Fatal(err)
	}
	dir := t.TempDir()
	within := func(path string) string {
		at, err := filepath.Abs(filepath.Join(root, "manifests", path))
		if err == nil {
			at, err = filepath.Rel(dir, at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	writeFile(t, dir, "kustomization.yaml", fmt.Appendf(nil, storing, within("overlays/default"), within("components/store")))
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, c)
		}
		if err := apply(context.WithoutCancel(t.Context()), c, "default"); err != nil {
			t.Error(err)
		}
		kubectl(t, c, "-n", "knative-serving", "rollout", "status", "deployment/rouse-activator", "--timeout=180s")
		kubectl(t, c, "-n", "knative-serving", "delete", "pvc/rouse-store", "--ignore-not-found")
		kubectl(t, c, "delete", "pv/rouse-store", "--ignore-not-found")
		if err := os.RemoveAll(disk); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, c, "apply", "-f", writeFile(t, dir, "volume.yaml", fmt.Appendf(nil, volume, disk)))
	kubectl(t, c, "apply", "-k", dir)
	rolledOut(t, c, "rouse-activator")
	if phase := strings.TrimSpace(kubectl(t, c, "-n", "knative-serving", "get", "pvc/rouse-store", "-o", "jsonpath={.status.phase}")); phase != "Bound" {
		t.Fatalf("the claim is %s", phase)
	}
	eventually(t, "there is one activator", func() string {
		if n := len(pods(t, c, "app=rouse-activator", "knative-serving")); n != 1 {
			return fmt.Sprintf("%d activators", n)
		}
		return ""
	})
}
