package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// kubeletDir is where the kubelet looks for device plugins, whatever its root directory.
const kubeletDir = "/var/lib/kubelet"

// fixed are folders that programs write to whatever their configuration. The node mounts its own over each.
var fixed = []struct{ host, own string }{
	{kubeletDir, "kubelet"},
	{"/var/lib/cni", "cni-results"},
	{"/var/log/containers", "containers"}, // links into the pods' logs
}

// configure writes the files that the node's programs read.
func configure(p Places, built programs) error {
	runtime, err := giveGPUs(p, built)
	if err != nil {
		return err
	}
	for name, body := range map[string]string{
		"net.d/10-bridge.conflist": fmt.Sprintf(bridgeConfig, p.node("cni"), PodCIDR),
		"containerd.toml": fmt.Sprintf(containerdConfig, p.node("containerd"), pauseImage,
			built["cni"], p.node("net.d"), runtime),
		"resolv.conf":     "nameserver " + NodeIP + "\n",
		"kubelet.yaml":    fmt.Sprintf(kubeletConfig, p.pki("ca.crt"), NodeIP, p.node("resolv.conf"), p.node("log/pods")),
		"kube-proxy.yaml": fmt.Sprintf(proxyConfig, PodCIDR, p.Kubeconfig(), NodeName),
		"Corefile":        fmt.Sprintf(dnsConfig, NodeIP, p.Kubeconfig()),
	} {
		file := p.node(name)
		if err := os.WriteFile(filepath.Join(mkdir(filepath.Dir(file)), filepath.Base(file)), []byte(body), 0o644); err != nil {
			return fmt.Errorf("write the node's configuration: %w", err)
		}
	}
	return nil
}

// Each %q is the folder of the addresses given out, then the pods' network.
const bridgeConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`

// restrict_oom_score_adj: inside a container there may be no right to lower a process's score below its parent's. The
// opt plugin would make /opt/containerd.
const containerdConfig = `version = 3
root = %q
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  max_container_log_line_size = 262144
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
    conf_dir = %q
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = %q
`

// A deleted image can't be pulled again, so images are never collected (100), nothing is evicted (0%%), and a pull that
// failed before the image was loaded does not count (NeverVerify). For eviction, the kubelet counts page cache as used
// memory: a build beside the cluster would evict Knative's pods. failCgroupV1: the host may have either version.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %q}}
authorization: {mode: AlwaysAllow}
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: %q
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
enforceNodeAllocatable: []
imagePullCredentialsVerificationPolicy: NeverVerify
serializeImagePulls: false
failSwapOn: false
maxPods: 200
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 200
kubeAPIBurst: 400
podLogsDir: %q
`

// The limits of connection tracking are the host's.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: %s
clientConnection: {kubeconfig: %q}
hostnameOverride: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 0s, syncPeriod: 30s}
`

const dnsConfig = `.:53 {
  bind %s
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig %s
    ttl 1
  }
}
`
