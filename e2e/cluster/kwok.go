package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// KWOK are nodes of which sigs.k8s.io/kwok says what a kubelet would say. Pods on them run nothing.
type KWOK struct {
	Nodes    int // 0: nothing of KWOK runs
	GPUs     int // of each
	MemoryMB int // of each GPU
}

// KWOKLabel marks the nodes, and is the key of their taint.
const KWOKLabel = "kwok.x-k8s.io/node"

// SetKWOK makes the cluster have exactly these nodes besides its own. The first call builds KWOK.
func (c *Cluster) SetKWOK(ctx context.Context, k KWOK) error {
	if k.Nodes < 0 || k.Nodes > 5000 || k.GPUs < 0 || k.MemoryMB < 0 {
		return fmt.Errorf("nodes that are not there: want 0 to 5000, with at least 0 GPUs of at least 0 MiB: got %d, %d, %d", k.Nodes, k.GPUs, k.MemoryMB)
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	nodes := client.CoreV1().Nodes()
	if err := c.endKWOK(ctx, nodes); err != nil || k.Nodes == 0 {
		return err
	}
	built, err := builder{c.places, slog.New(slog.DiscardHandler)}.one(ctx, kwokSet())
	if err != nil {
		return err
	}
	if err := k.create(ctx, nodes); err != nil {
		return err
	}
	n := node{c.places, built}
	return c.super.run(ctx, n.service("kwok", n.programs.path("kwok", "kwok"),
		"--kubeconfig="+c.places.Kubeconfig(), "--manage-nodes-with-label-selector="+KWOKLabel+"=fake",
		"--node-lease-duration-seconds=120", "--cidr=10.245.0.0/16", "--node-ip="+NodeIP, "--v=WARN"))
}

func (k KWOK) create(ctx context.Context, nodes typedcorev1.NodeInterface) error {
	var jobs errgroup.Group
	jobs.SetLimit(16)
	for i := range k.Nodes {
		jobs.Go(func() error {
			_, err := nodes.Create(ctx, k.node("kwok-"+strconv.Itoa(i)), metav1.CreateOptions{})
			return err
		})
	}
	return jobs.Wait()
}

func (c *Cluster) endKWOK(ctx context.Context, nodes typedcorev1.NodeInterface) error {
	all, err := c.super.list(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == "kwok" && !s.Stopped {
			if err := c.super.stop(ctx, s.Name); err != nil {
				return err
			}
		}
	}
	return nodes.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: KWOKLabel + "=fake"})
}

// node is labelled as by NVIDIA's feature discovery.
func (k KWOK) node(name string) *corev1.Node {
	has := corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("110")}
	labels := map[string]string{KWOKLabel: "fake", "type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
	if k.GPUs > 0 {
		has["nvidia.com/gpu"] = *resource.NewQuantity(int64(k.GPUs), resource.DecimalSI)
		for label, value := range map[string]string{
			"present": "true", "product": "Fake-GPU", "count": strconv.Itoa(k.GPUs), "memory": strconv.Itoa(k.MemoryMB), "replicas": "1",
		} {
			labels["nvidia.com/gpu."+label] = value
		}
	}
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{KWOKLabel: "fake"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: KWOKLabel, Value: "fake", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: has, Allocatable: has, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now},
		}},
	}
}
