package inject

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/api/control"
)

// Keys of the Secret.
const (
	secretAuthority = "ca.crt" // certificates of the authority, the signing one first
	secretKey       = "ca.key" // its private key
)

const (
	authorityLife = 365 * 24 * time.Hour
	ownLife       = 30 * 24 * time.Hour
	// renewal is the divisor of a certificate's life: it is replaced when less than that part is left.
	renewal = 3
)

// authority signs the replicas' certificates.
type authority struct {
	bundle []byte // PEM: its certificate, and the previous one while that may be in use
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// fresh reports whether at least a third of a certificate's life is left.
func fresh(c *x509.Certificate, now time.Time) bool {
	return now.Before(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / renewal))
}

// newAuthority creates an authority. before is the previous bundle: its first certificate stays trusted.
func newAuthority(now time.Time, before []byte) (data map[string][]byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: injectorName + " CA " + now.UTC().Format(time.RFC3339)}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	if old, _ := pem.Decode(before); old != nil {
		bundle = append(bundle, pem.EncodeToMemory(old)...)
	}
	return map[string][]byte{secretAuthority: bundle, secretKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})}, nil
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return n
}

// readAuthority reads the authority in a Secret; it fails if there is none that can be used.
func readAuthority(data map[string][]byte) (*authority, error) {
	public, _ := pem.Decode(data[secretAuthority])
	private, _ := pem.Decode(data[secretKey])
	if public == nil || private == nil {
		return nil, errors.New("it has no certificate and key of an authority")
	}
	cert, err := x509.ParseCertificate(public.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(private.Bytes)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("its key is not that of its certificate")
	}
	return &authority{data[secretAuthority], cert, key}, nil
}

// sign creates a certificate for this replica.
func (a *authority) sign(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: serviceHost}, DNSNames: []string{serviceHost}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}, nil
}

// authorize makes sure that there is an authority, that it is trusted, and that this replica has a certificate of it:
//
//  1. If the Secret has no valid authority, create one. If two replicas do so at once, the first wins.
//  2. The webhook's configuration trusts it before it is used.
//  3. If this replica's certificate is old or of another authority, sign one.
//  4. Once the service answers with it, the configuration gets its rules: until then the API server does not call the webhook.
func (s *server) authorize(ctx context.Context, now time.Time) error {
	secrets := s.cfg.Clients.CoreV1().Secrets(control.SystemNamespace)
	secret, err := secrets.Get(ctx, injectorName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the Secret %s: %w", injectorName, err)
	}
	a, bad := readAuthority(secret.Data)
	if bad != nil || !fresh(a.cert, now) { // 1.
		if secret.Data, err = newAuthority(now, secret.Data[secretAuthority]); err != nil {
			return fmt.Errorf("make an authority: %w", err)
		}
		if secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("write the Secret %s: %w", injectorName, err) // another replica was first: the next call finds its authority
		}
		s.cfg.Log.Info("made an authority for the webhook's certificates", "reason", bad)
		if a, err = readAuthority(secret.Data); err != nil {
			return err
		}
	}
	if err := s.configure(ctx, func(w *admission.MutatingWebhook) { w.ClientConfig.CABundle = a.bundle }); err != nil { // 2.
		return err
	}
	own := s.own.Load()
	if own == nil || !fresh(own.Leaf, now) || own.Leaf.CheckSignatureFrom(a.cert) != nil { // 3.
		if own, err = a.sign(now); err != nil {
			return fmt.Errorf("sign a certificate: %w", err)
		}
		s.own.Store(own)
	}
	if err := s.reached(ctx, a.bundle); err != nil { // 4.
		return fmt.Errorf("the webhook's service does not answer yet: %w", err)
	}
	return s.configure(ctx, func(w *admission.MutatingWebhook) { w.Rules = rules })
}

// rules select what the API server asks about; the webhook's own conditions select the pods.
var rules = []admission.RuleWithOperations{{
	Operations: []admission.OperationType{admission.Create},
	Rule:       admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admission.NamespacedScope)},
}}

// configure changes our webhooks, if needed. It fails if the configuration was removed.
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

// announce writes the image that brings the function to our service account: the admission policy of dual pods allows no other.
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

// reached checks that the service leads to a replica whose certificate the bundle trusts.
func (s *server) reached(ctx context.Context, bundle []byte) error {
	if s.reach != nil {
		return s.reach(ctx, bundle)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+serviceHost+"/healthz", nil)
	if err != nil {
		return err
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// functionImage returns the image of the init container: the image of the "function" init container of our own pod, which
// exists to name it.
func functionImage(pod *corev1.Pod) (image, error) {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == "function" {
			return image{c.Image, c.ImagePullPolicy}, nil
		}
	}
	return image{}, fmt.Errorf("the pod %s has no init container \"function\", whose image is the one that is brought into other pods: apply manifests/components/any-image again, or set --function-image", pod.Name)
}
