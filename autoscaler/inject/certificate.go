package inject

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/webhook/certificates/resources"

	"github.com/rouse-dev/rouse/api/control"
)

// The webhook's certificate is replaced when less than a third of its life is left.
const (
	certificateLife = 365 * 24 * time.Hour
	renewBefore     = certificateLife / 3
)

const authorityKey = "ca.crt"

// issue returns the data of the Secret. Trusted is also the authority before, whose certificate replicas use until they
// read the Secret again.
func issue(ctx context.Context, now time.Time, before []byte) (map[string][]byte, error) {
	key, cert, trusted, err := resources.CreateCerts(ctx, injectorName, control.SystemNamespace, now.Add(certificateLife))
	if err != nil {
		return nil, err
	}
	if old, _ := pem.Decode(before); old != nil {
		trusted = append(trusted, pem.EncodeToMemory(old)...)
	}
	return map[string][]byte{corev1.TLSPrivateKeyKey: key, corev1.TLSCertKey: cert, authorityKey: trusted}, nil
}

// readCertificate fails if the certificate has to be replaced.
func readCertificate(data map[string][]byte, now time.Time) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	_, err = cert.Leaf.Verify(x509.VerifyOptions{Roots: pool(data[authorityKey]), DNSName: serviceHost, CurrentTime: now.Add(renewBefore)})
	return &cert, err
}

func pool(bundle []byte) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(bundle)
	return p
}

// authorize makes sure that the Secret has a certificate, and that it is trusted before this replica uses it. The
// configuration gets its rules once the service answers: until then the API server does not call the webhook.
func (s *server) authorize(ctx context.Context, now time.Time) error {
	secrets := s.cfg.Clients.CoreV1().Secrets(control.SystemNamespace)
	secret, err := secrets.Get(ctx, injectorName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the Secret %s: %w", injectorName, err)
	}
	own, bad := readCertificate(secret.Data, now)
	if bad != nil {
		if secret.Data, err = issue(ctx, now, secret.Data[authorityKey]); err != nil {
			return fmt.Errorf("create a certificate: %w", err)
		}
		if secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("write the Secret %s: %w", injectorName, err) // another replica was first
		}
		s.cfg.Log.Info("created a certificate for the webhook", "reason", bad)
		if own, err = readCertificate(secret.Data, now); err != nil {
			return err
		}
	}
	bundle := secret.Data[authorityKey]
	if err := s.configure(ctx, func(w *admission.MutatingWebhook) { w.ClientConfig.CABundle = bundle }); err != nil {
		return err
	}
	s.own.Store(own)
	if err := s.reached(ctx, bundle); err != nil {
		return fmt.Errorf("the webhook's service does not answer yet: %w", err)
	}
	return s.configure(ctx, func(w *admission.MutatingWebhook) { w.Rules = rules })
}

// rules: the webhook's own conditions select the pods.
var rules = []admission.RuleWithOperations{{
	Operations: []admission.OperationType{admission.Create},
	Rule:       admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admission.NamespacedScope)},
}}

func (s *server) configure(ctx context.Context, change func(*admission.MutatingWebhook)) error {
	all := s.cfg.Clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
	c, err := all.Get(ctx, injectorName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no MutatingWebhookConfiguration %s: no image is given the function", injectorName)
	}
	if err != nil {
		return fmt.Errorf("read the MutatingWebhookConfiguration %s: %w", injectorName, err)
	}
	next, found, changed := c.DeepCopy(), false, false
	for k := range next.Webhooks {
		w, old := &next.Webhooks[k], &c.Webhooks[k]
		if w.Name != webhookName && w.Name != providersName {
			continue
		}
		change(w)
		found = found || w.Name == webhookName
		changed = changed || !bytes.Equal(w.ClientConfig.CABundle, old.ClientConfig.CABundle) || len(w.Rules) != len(old.Rules)
	}
	if !found {
		return fmt.Errorf("the MutatingWebhookConfiguration %s has no webhook %s: apply it again", injectorName, webhookName)
	}
	if !changed {
		return nil
	}
	if _, err := all.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the MutatingWebhookConfiguration %s: %w", injectorName, err)
	}
	return nil
}

// announce writes our image to our service account: the admission policy of dual pods allows no other.
func (s *server) announce(ctx context.Context) error {
	accounts := s.cfg.Clients.CoreV1().ServiceAccounts(control.SystemNamespace)
	a, err := accounts.Get(ctx, injectorName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the ServiceAccount %s: %w", injectorName, err)
	}
	if a.Annotations[annotationImage] == s.image.name {
		return nil
	}
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotationImage, s.image.name)
	if _, err := accounts.Patch(ctx, injectorName, types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write the ServiceAccount %s: %w", injectorName, err)
	}
	return nil
}

func (s *server) reached(ctx context.Context, bundle []byte) error {
	if s.reach != nil {
		return s.reach(ctx, bundle)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+serviceHost+"/healthz", nil)
	if err != nil {
		return err
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(bundle), MinVersion: tls.VersionTLS13}, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// functionImage returns the image of our own pod's "function" init container, which exists to name it.
func functionImage(pod *corev1.Pod) (image, error) {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == "function" {
			return image{c.Image, c.ImagePullPolicy}, nil
		}
	}
	return image{}, fmt.Errorf("the pod %s has no init container \"function\", whose image is the one that is brought into other pods: apply manifests/components/any-image again, or set --function-image", pod.Name)
}
