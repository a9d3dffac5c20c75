package cluster

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

func (c *Cluster) install(ctx context.Context, n node, m manifests) error {
	if err := c.apply(ctx, m.CRDs, "--server-side", "--force-conflicts"); err != nil {
		return fmt.Errorf("apply Knative's resource definitions: %w", err)
	}
	err := until(ctx, time.Minute, func() error { // kubectl gives up at once on one that has no condition yet
		_, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for Knative's resource definitions: %w", err)
	}
	if err := c.super.run(ctx, n.ingress()); err != nil {
		return err
	}
	// Who led in a cluster whose files were kept is gone.
	if _, err := c.Kubectl(ctx, "delete", "lease", "--all", "-n", "knative-serving", "--ignore-not-found"); err != nil {
		return fmt.Errorf("remove old leases: %w", err)
	}
	// Where files were kept Knative's webhook is asked before its pod is up.
	if err := until(ctx, 2*time.Minute, func() error { return c.apply(ctx, m.Core, "--server-side", "--force-conflicts") }); err != nil {
		return fmt.Errorf("apply Knative: %w", err)
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Available", "deploy", "--all", "-n", "knative-serving", "--timeout=180s"); err != nil {
		return fmt.Errorf("wait for Knative: %w", err)
	}
	// The webhook's pod may be ready before its service leads there.
	if err := until(ctx, 20*time.Second, func() error { return c.apply(ctx, m.Cache) }); err != nil {
		return fmt.Errorf("apply Knative's image cache: %w", err)
	}
	if err := c.apply(ctx, fmt.Appendf(nil, ingressService, NodeIP)); err != nil {
		return fmt.Errorf("apply the ingress's service: %w", err)
	}
	return nil
}

// ingressService is the name by which pods reach the ingress, which is no pod.
const ingressService = `apiVersion: v1
kind: Service
metadata: {name: mini-ingress, namespace: knative-serving}
spec: {ports: [{name: http2, port: 80, targetPort: 8081}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: mini-ingress, namespace: knative-serving}
subsets: [{addresses: [{ip: %s}], ports: [{name: http2, port: 8081}]}]
`

func (c *Cluster) apply(ctx context.Context, yaml []byte, args ...string) error {
	cmd := c.command(ctx, "kubectl", append([]string{"apply", "-f", "-"}, args...)...)
	cmd.Stdin = bytes.NewReader(yaml)
	_, err := output(cmd)
	return err
}
