package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// labels returns the labels that feature discovery sets. nil removes one.
func (c config) labels() map[string]*string {
	text := func(s string) *string { return &s }
	all := map[string]*string{
		"nvidia.com/gpu.count": nil, "nvidia.com/gpu.memory": nil, "nvidia.com/gpu.replicas": nil,
		"nvidia.com/gpu.product": nil, "nvidia.com/gpu.present": nil,
	}
	if len(c.gpus) == 0 {
		return all
	}
	product := "Fake-GPU"
	if c.replicas > 1 {
		product += "-SHARED"
	}
	all["nvidia.com/gpu.present"] = text("true")
	all["nvidia.com/gpu.product"] = text(product)
	all["nvidia.com/gpu.count"] = text(strconv.Itoa(len(c.gpus)))
	all["nvidia.com/gpu.memory"] = text(strconv.Itoa(c.memory))
	all["nvidia.com/gpu.replicas"] = text(strconv.Itoa(c.replicas))
	return all
}

func label(ctx context.Context, c config, log *slog.Logger) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": c.labels()}})
	if err != nil {
		log.Error("the node's labels can't be written down", "error", err)
		return
	}
	for told := false; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		err := c.patch(ctx, patch)
		if err == nil {
			log.Info("labelled", "node", c.node)
			return
		}
		if !told {
			log.Info("the node has no labels yet", "error", err)
			told = true
		}
	}
}

func (c config) patch(ctx context.Context, patch []byte) error {
	rest, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, c.node, types.MergePatchType, patch, meta.PatchOptions{FieldManager: "fakegpu"})
	return err
}
