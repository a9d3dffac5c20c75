package kn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/flagset"
	"github.com/rouse-dev/rouse/manifests"
)

// Results, the worst last.
const (
	resultOK      = "ok"
	resultUnknown = "unknown" // no permission to look
	resultWarning = "warning" // Rouse works, but a part of it does not
	resultMissing = "missing" // Rouse, or what was requested, does not work
)

type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Found  string `json:"found"`
	Mend   string `json:"mend,omitempty"`
}

type checker struct {
	*cluster
	plan     plan
	objects  []object // to apply, of kinds that the cluster knows
	findings []finding
}

// plan says what is or will be installed.
type plan struct {
	overlay    string
	components []string
}

func checkCommand() *cobra.Command {
	var p plan
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what the cluster has and lacks for Rouse, and how to mend it",
		Long: `Say what the cluster has and lacks, and how to mend it, before Rouse is installed by
kubectl or Helm, or afterwards. It changes nothing. Exit status 1: something is missing.`,
		Example: `  kn rouse check
  # with what is to be installed
  kn rouse check --overlay dual-pods --component any-image`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done within --timeout %s", timeout))
			defer cancel()
			check := &checker{cluster: c, plan: p}
			if err := check.run(ctx); err != nil {
				return err
			}
			return check.report(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.overlay, "overlay", "default", "what is installed: `one` of "+strings.Join(manifests.Overlays(), ", "))
	f.StringSliceVar(&p.components, "component", nil, "what is added (repeatable): `one` of "+strings.Join(manifests.Components(), ", "))
	flagset.DurationVarP(f, &timeout, "timeout", "", time.Minute, "how `long` it may take")
	render.Flag(cmd)
	return cmd
}

func (c *checker) add(check, result, mend, found string, args ...any) {
	c.findings = append(c.findings, finding{check, result, fmt.Sprintf(found, args...), mend})
}

// failed records that something could not be examined.
func (c *checker) failed(check string, err error) {
	var d *denied
	if errors.As(err, &d) {
		c.add(check, resultUnknown, "an administrator sees it; kubectl auth can-i "+d.right.String(), "you may not %s %s", d.verb, d.resource)
		return
	}
	c.add(check, resultUnknown, "", "%v", err)
}

// run checks, in the order of dependencies:
//
//  1. Kubernetes and Knative Serving: versions, and the kinds used in the manifests.
//  2. Whether the user may install, and whether the cluster would accept each object.
//  3. The ingress, and Knative's feature flags.
//  4. Nodes: GPUs, their device plugins, their runtime class.
//  5. Storage.
//  6. Rouse itself, if installed: its Deployments, the webhook of any-image, keys.
//
// It returns early only if the cluster does not answer.
func (c *checker) run(ctx context.Context) error {
	if err := c.kubernetes(); err != nil { // 1.
		return err
	}
	switch version, remark, err := c.knative(ctx); {
	case err != nil:
		c.add("knative", resultMissing, "install Knative Serving 1.24: https://knative.dev/docs/install/", "%v", err)
	case remark != "":
		c.add("knative", resultWarning, "", "%s", remark)
	default:
		c.add("knative", resultOK, "", "Serving %s", version)
	}
	if err := c.kinds(); err != nil {
		return err
	}
	c.rights(ctx)  // 2.
	c.ingress(ctx) // 3.
	c.features(ctx)
	c.nodes(ctx)   // 4.
	c.storage(ctx) // 5.
	c.rouse(ctx)   // 6.
	return context.Cause(ctx)
}

func (c *checker) report(cmd *cobra.Command) error {
	missing := 0
	for _, f := range c.findings {
		if f.Result == resultMissing {
			missing++
		}
	}
	err := render.Print(cmd, c.findings, func(w io.Writer, _ []finding) error {
		rows := render.Rows{{"CHECK", "RESULT", "FOUND"}}
		for _, f := range c.findings {
			rows.Add(f.Check, f.Result, render.OneLine(f.Found))
		}
		if err := render.Table(w, rows); err != nil {
			return err
		}
		for _, f := range c.findings {
			if f.Mend != "" {
				if _, err := fmt.Fprintf(w, "\n%s: %s\n", f.Check, strings.ReplaceAll(f.Mend, "\n", "\n  ")); err != nil {
					return err
				}
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case missing > 0:
		return fmt.Errorf("%d of %d checks found something missing", missing, len(c.findings))
	}
	return nil
}
