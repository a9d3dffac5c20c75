package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Collect writes to dir what shows why something failed. Its error tells what it could not collect.
func (c *Cluster) Collect(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("collect logs: %w", err)
	}
	var errs []error
	for file, args := range map[string]string{
		"events.txt":   "get events -A --sort-by=.lastTimestamp",
		"pods.txt":     "get pods -A -o wide",
		"pods.yaml":    "get pods -A -o yaml",
		"nodes.yaml":   "get nodes -o yaml",
		"objects.txt":  "get deployments,services,endpoints,configmaps,leases -A",
		"knative.txt":  "get ksvc,configurations,revisions,routes,podautoscalers,serverlessservices,kingress,metrics -A",
		"knative.yaml": "get ksvc,revisions,routes,podautoscalers,serverlessservices,kingress -A -o yaml",
	} {
		out, err := c.Kubectl(ctx, strings.Fields(args)...)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, file), []byte(out), 0o644))
	}
	// The kubelet's files have the logs of pods that are gone, too.
	_, err := output(exec.CommandContext(ctx, "cp", "-r", c.places.node("log"), filepath.Join(dir, "node")))
	return errors.Join(append(errs, err)...)
}

// Unhealthy lists the nodes and the cluster's own pods that are not as they ought to be.
func (c *Cluster) Unhealthy(ctx context.Context) (string, error) {
	nodes, err := c.Kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}{range .status.conditions[*]} {.type}={.status}{end}{"\n"}{end}`)
	if err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(nodes) {
		if strings.Contains(line, "Pressure=True") || !strings.Contains(line, " Ready=True") {
			lines = append(lines, "node "+strings.TrimSpace(line))
		}
	}
	for _, namespace := range []string{"kube-system", "knative-serving"} {
		pods, err := c.Kubectl(ctx, "get", "pods", "-n", namespace, "--no-headers")
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(pods) {
			fields := strings.Fields(line) // name, ready/containers, phase or reason, …
			if len(fields) < 3 {
				continue
			}
			ready, all, _ := strings.Cut(fields[1], "/")
			if ready != all && fields[2] != "Completed" {
				lines = append(lines, "pod "+namespace+"/"+strings.Join(fields, " "))
			}
		}
	}
	return strings.Join(lines, "\n"), nil
}
