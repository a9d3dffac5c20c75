package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
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
// all are there, or gone. The first call builds KWOK, for a minute or two.
func (c *Cluster) SetKWOK(ctx context.Context, k KWOK) error {
	if c.record == nil {
		return errForeign
	}
	if k.Nodes < 0 || k.Nodes > 5000 || k.GPUs < 0 || k.MemoryMB < 0 {
		return fmt.Errorf("nodes that are not there: want 0 to 5000, with at least 0 GPUs of at least 0 MiB: got %d, %d, %d", k.Nodes, k.GPUs, k.MemoryMB)
	}
	client, err := c.places.administrator()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	if err := c.endKWOK(ctx, client); err != nil || k.Nodes == 0 {
		return err
	}
	built, err := builder{c.places, slog.New(slog.DiscardHandler)}.one(ctx, kwokSet())
	if err != nil {
		return err
	}
	if err := k.create(ctx, client); err != nil {
		return err
	}
	n := node{c.places, built}
	return c.super.run(ctx, n.service("kwok", n.programs.path("kwok", "kwok"),
		"--kubeconfig="+c.places.Kubeconfig(), "--manage-nodes-with-label-selector="+KWOKLabel+"=fake",
		"--node-lease-duration-seconds=120", "--cidr=10.245.0.0/16", "--node-ip="+NodeIP, "--v=WARN"))
}

// create makes the nodes, ready from the start: KWOK's part is that they stay so.
func (k KWOK) create(ctx context.Context, client *http.Client) error {
	var jobs errgroup.Group
	jobs.SetLimit(16)
	for i := range k.Nodes {
		jobs.Go(func() error {
			raw, err := json.Marshal(k.node("kwok-" + strconv.Itoa(i)))
			if err != nil {
				return err
			}
			return ask(ctx, client, http.MethodPost, "/api/v1/nodes", raw)
		})
	}
	return jobs.Wait()
}

func (c *Cluster) endKWOK(ctx context.Context, client *http.Client) error {
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
	return ask(ctx, client, http.MethodDelete, "/api/v1/nodes?labelSelector="+KWOKLabel+"%3Dfake", nil)
}

// ask makes one request of the API server.
func ask(ctx context.Context, client *http.Client, method, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+NodeIP+":6443"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer)
	}
	return err
}

// node is a node as NVIDIA's feature discovery would label it.
func (k KWOK) node(name string) map[string]any {
	type object = map[string]any
	has := object{"cpu": "64", "memory": "512Gi", "pods": "110"}
	labels := object{KWOKLabel: "fake", "type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
	if k.GPUs > 0 {
		has["nvidia.com/gpu"] = strconv.Itoa(k.GPUs)
		for label, value := range map[string]string{
			"present": "true", "product": "Fake-GPU", "count": strconv.Itoa(k.GPUs), "memory": strconv.Itoa(k.MemoryMB), "replicas": "1",
		} {
			labels["nvidia.com/gpu."+label] = value
		}
	}
	now := time.Now().UTC().Format(time.RFC3339)
	return object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name, "labels": labels, "annotations": object{KWOKLabel: "fake"}},
		"spec":     object{"taints": []object{{"key": KWOKLabel, "value": "fake", "effect": "NoSchedule"}}},
		"status": object{"capacity": has, "allocatable": has, "conditions": []object{
			{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now},
		}},
	}
}
