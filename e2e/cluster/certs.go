package cluster

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// certs makes the cluster's certificates by openssl.
//
//go:embed certs.sh
var certs string

// certify makes certificates and the administrator's kubeconfig, unless they exist: one authority, one certificate for
// the API server, one for the administrator and the control plane, and one key for tokens.
func certify(p Places) error {
	if _, err := os.Stat(p.Kubeconfig()); err == nil {
		return nil
	}
	if err := os.MkdirAll(p.pki(""), 0o700); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	cmd := exec.Command("sh", "-euc", certs)
	cmd.Dir, cmd.Env = p.pki(""), append(os.Environ(), "NODE="+NodeIP, "SERVICE="+firstIP)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make certificates: %w: %s", err, out)
	}
	var data []any
	for _, name := range []string{"ca.crt", "admin.crt", "admin.key"} {
		body, err := os.ReadFile(p.pki(name))
		if err != nil {
			return fmt.Errorf("make certificates: %w", err)
		}
		data = append(data, base64.StdEncoding.EncodeToString(body))
	}
	// The last file, and written as a whole: where it is, the others are.
	tmp := filepath.Join(p.Node, "tmp-kubeconfig")
	if err := os.WriteFile(tmp, fmt.Appendf(nil, kubeconfig, data...), 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return os.Rename(tmp, p.Kubeconfig())
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: rouse
clusters: [{name: rouse, cluster: {server: "https://` + NodeIP + `:6443", certificate-authority-data: %s}}]
users: [{name: admin, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: rouse, context: {cluster: rouse, user: admin}}]
`
