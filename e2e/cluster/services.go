package cluster

import "os"

const ingressClass = "mini.ingress.networking.knative.dev"

type node struct {
	places   Places
	programs programs
}

func (n node) service(name, path string, args ...string) Service {
	return Service{Name: name, Path: path, Args: args, Log: n.places.log(name)}
}

func (n node) etcd() Service {
	return n.service("etcd", n.programs.path("etcd", "etcd"),
		"--name=n1", "--data-dir="+n.places.node("etcd"),
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=n1=http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level=warn")
}

func (n node) containerd() Service {
	s := n.service("containerd", n.programs.path("containerd", "containerd"), "-c", n.places.node("containerd.toml"))
	s.Env = []string{"PATH=" + n.programs["containerd"] + ":" + os.Getenv("PATH")} // it looks for its shim there
	return s
}

func (n node) apiserver() Service {
	return n.service("apiserver", n.programs.path("kubernetes", "kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379", "--advertise-address="+NodeIP, "--secure-port=6443",
		"--service-cluster-ip-range="+ServiceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+n.places.pki("tokens.pub"),
		"--service-account-signing-key-file="+n.places.pki("tokens.key"),
		"--tls-cert-file="+n.places.pki("apiserver.crt"), "--tls-private-key-file="+n.places.pki("apiserver.key"),
		"--client-ca-file="+n.places.pki("ca.crt"), "--authorization-mode=RBAC", "--allow-privileged=true",
		"--kubelet-client-certificate="+n.places.pki("admin.crt"), "--kubelet-client-key="+n.places.pki("admin.key"),
		"--kubelet-preferred-address-types=InternalIP", "--endpoint-reconciler-type=lease",
		"--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false",
		"--profiling=false", "--v=1")
}

func (n node) controllers() Service {
	return n.service("controllers", n.programs.path("kubernetes", "kube-controller-manager"),
		"--kubeconfig="+n.places.Kubeconfig(), "--leader-elect=false", "--root-ca-file="+n.places.pki("ca.crt"),
		"--service-account-private-key-file="+n.places.pki("tokens.key"), "--use-service-account-credentials=false",
		"--flex-volume-plugin-dir="+n.places.node("volumeplugins"),
		"--kube-api-qps=200", "--kube-api-burst=400", "--bind-address=127.0.0.1", "--v=1")
}

func (n node) scheduler() Service {
	return n.service("scheduler", n.programs.path("kubernetes", "kube-scheduler"),
		"--kubeconfig="+n.places.Kubeconfig(), "--leader-elect=false",
		"--kube-api-qps=200", "--kube-api-burst=400", "--bind-address=127.0.0.1", "--v=1")
}

func (n node) kubelet() Service {
	return n.service("kubelet", n.programs.path("kubernetes", "kubelet"),
		"--config="+n.places.node("kubelet.yaml"), "--kubeconfig="+n.places.Kubeconfig(),
		"--hostname-override="+NodeName, "--node-ip="+NodeIP, "--volume-plugin-dir="+n.places.node("volumeplugins"), "--v=2")
}

func (n node) proxy() Service {
	return n.service("kube-proxy", n.programs.path("kubernetes", "kube-proxy"), "--config="+n.places.node("kube-proxy.yaml"), "--v=1")
}

func (n node) dns() Service {
	return n.service("coredns", n.programs.path("coredns", "coredns"), "-conf", n.places.node("Corefile"))
}

func (n node) ingress() Service {
	return n.service("mini-ingress", n.programs.path("own", "mini-ingress"),
		"-kubeconfig="+n.places.Kubeconfig(), "-class="+ingressClass, "-listen="+NodeIP+":80", "-listen-internal="+NodeIP+":8081")
}
