# Makes the cluster's certificates in the working directory: sh -eu certs.sh, with the addresses NODE and SERVICE.
umask 077
printf '[req]\ndistinguished_name = none\n[none]\n' >openssl.cnf
new() { # NAME SUBJECT OPTION…: a key, and its certificate
	name=$1 subject=$2
	shift 2
	openssl req -x509 -config openssl.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -keyout "$name.key" -out "$name.crt" -subj "$subject" "$@"
}
new ca /CN=rouse-cluster -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature
new apiserver /CN=kube-apiserver -CA ca.crt -CAkey ca.key -addext keyUsage=critical,digitalSignature -addext extendedKeyUsage=serverAuth \
	-addext "subjectAltName=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$NODE,IP:$SERVICE"
new admin /O=system:masters/CN=admin -CA ca.crt -CAkey ca.key -addext keyUsage=critical,digitalSignature -addext extendedKeyUsage=clientAuth
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out tokens.key
openssl pkey -in tokens.key -pubout -out tokens.pub
rm openssl.cnf ca.key
