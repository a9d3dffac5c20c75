package kn

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

func keysCommand() *cobra.Command {
	open := func(cmd *cobra.Command) (verb.KeysFile, error) {
		c, err := connect(cmd)
		if err != nil {
			return nil, err
		}
		return keysSecret{c}, nil
	}
	return shared.Keys(open, func(*cobra.Command) {}, func(verb.KeysFile) string { return "" })
}

type keysSecret struct{ *cluster }

func (keysSecret) String() string {
	return "Secret " + control.SystemNamespace + "/" + control.KeysSecret
}

// Read implements [verb.KeysFile].
func (k keysSecret) Read(ctx context.Context) ([]byte, error) {
	s, err := k.get(ctx)
	return s.Data[control.KeysSecretKey], err
}

func (k keysSecret) get(ctx context.Context) (corev1.Secret, error) {
	s, err := get[corev1.Secret](ctx, k.cluster, secrets, control.SystemNamespace, control.KeysSecret)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("there is no %s: install Rouse first: %s", k, applyCommand)
	}
	return s, err
}

// Change implements [verb.KeysFile].
func (k keysSecret) Change(ctx context.Context, change func([]byte) ([]byte, error)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { // the caller names the Secret
		s, err := k.get(ctx)
		if err != nil {
			return err
		}
		raw, err := change(s.Data[control.KeysSecretKey])
		if err != nil {
			return err
		}
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[control.KeysSecretKey] = raw
		_, err = k.kube.CoreV1().Secrets(control.SystemNamespace).Update(ctx, &s, metav1.UpdateOptions{})
		if err == nil || apierrors.IsConflict(err) {
			return err // retried
		}
		return refusal(err, "update", secrets, control.SystemNamespace, control.KeysSecret)
	})
}
