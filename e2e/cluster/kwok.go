package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"text/template"
)

// KWOK are nodes that are not there: KWOK (sigs.k8s.io/kwok) says of them what
// a kubelet would say. No pod lands on them that does not tolerate their taint, and one
// that does runs nothing.
type KWOK struct {
	Nodes    int // 0: none, and nothing of KWOK runs
	GPUs     int // of each
	MemoryMB int // of each GPU
}

// KWOKLabel marks the nodes, and is the key of their taint.
const KWOKLabel = "kwok.x-k8s.io/node"

// SetKWOK makes the cluster have exactly these nodes besides its own, and returns when
// all are ready, or gone. The first call builds KWOK, for a minute or two.
func (c *Cluster) SetKWOK(ctx context.Context, k KWOK) error {
	if c.record == nil {
		return errForeign
	}
	if k.Nodes < 0 || k.Nodes > 5000 || k.GPUs < 0 || k.MemoryMB < 0 {
		return fmt.Errorf("nodes that are not there: want 0 to 5000, with at least 0 GPUs of at least 0 MiB: got %d, %d, %d", k.Nodes, k.GPUs, k.MemoryMB)
	}
	if k.Nodes == 0 {
		return c.endKWOK(ctx)
	}
	built, err := builder{c.places, slog.New(slog.DiscardHandler)}.one(ctx, kwokSet())
	if err != nil {
		return err
	}
	n := node{c.places, built}
	if err := c.super.run(ctx, n.service("kwok", n.programs.path("kwok", "kwok"),
		"--kubeconfig="+c.places.Kubeconfig(), "--manage-nodes-with-label-selector="+KWOKLabel+"=fake",
		"--node-lease-duration-seconds=40", "--cidr=10.245.0.0/16", "--node-ip="+NodeIP)); err != nil {
		return err
	}
	if err := c.removeNodes(ctx, k.Nodes); err != nil {
		return err
	}
	var all bytes.Buffer
	for i := range k.Nodes {
		if err := nodeTemplate.Execute(&all, struct {
			Name string
			KWOK
		}{"kwok-" + strconv.Itoa(i), k}); err != nil {
			return err
		}
	}
	if err := c.apply(ctx, all.Bytes(), "--server-side", "--force-conflicts"); err != nil {
		return fmt.Errorf("make nodes: %w", err)
	}
	if _, err := c.Kubectl(ctx, "wait", "node", "-l", KWOKLabel+"=fake", "--for=condition=Ready", "--timeout=120s"); err != nil {
		return fmt.Errorf("wait for nodes: %w", err)
	}
	return nil
}

// removeNodes removes the nodes from number keep on.
func (c *Cluster) removeNodes(ctx context.Context, keep int) error {
	out, err := c.Kubectl(ctx, "get", "nodes", "-l", KWOKLabel+"=fake", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return err
	}
	args := []string{"delete", "node"}
	for name := range bytes.FieldsSeq([]byte(out)) {
		if i, err := strconv.Atoi(string(bytes.TrimPrefix(name, []byte("kwok-")))); err != nil || i >= keep {
			args = append(args, string(name))
		}
	}
	if len(args) == 2 {
		return nil
	}
	_, err = c.Kubectl(ctx, args...)
	return err
}

func (c *Cluster) endKWOK(ctx context.Context) error {
	if _, err := c.Kubectl(ctx, "delete", "nodes", "-l", KWOKLabel+"=fake", "--timeout=120s"); err != nil {
		return err
	}
	all, err := c.super.list(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == "kwok" && !s.Stopped {
			return c.super.stop(ctx, s.Name)
		}
	}
	return nil
}

// nodeTemplate is a node as NVIDIA's feature discovery would label it.
var nodeTemplate = template.Must(template.New("node").Parse(`---
apiVersion: v1
kind: Node
metadata:
  name: {{.Name}}
  annotations: {kwok.x-k8s.io/node: fake, node.alpha.kubernetes.io/ttl: "0"}
  labels:
    kwok.x-k8s.io/node: fake
    type: kwok
    kubernetes.io/hostname: {{.Name}}
    kubernetes.io/os: linux
    {{- if .GPUs}}
    nvidia.com/gpu.present: "true"
    nvidia.com/gpu.product: Fake-GPU
    nvidia.com/gpu.count: "{{.GPUs}}"
    nvidia.com/gpu.memory: "{{.MemoryMB}}"
    nvidia.com/gpu.replicas: "1"
    {{- end}}
spec:
  taints: [{key: kwok.x-k8s.io/node, value: fake, effect: NoSchedule}]
status:
  capacity: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "{{.GPUs}}"}
  allocatable: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "{{.GPUs}}"}
`))
