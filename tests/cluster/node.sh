#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Is a node of a cluster: the first process of a process, mount and network namespace that cluster.py
makes, and the parent of Kubernetes, containerd, etcd and a name server. When it ends, everything
that it started, its mounts and its network end with it. Only control groups stay.

usage: tests/cluster/node.sh PROGRAMS FOLDER [FIRST]

PROGRAMS is a folder of build-kubernetes.sh. FOLDER has room for everything that the node writes,
and afterwards has `kubeconfig` and `log/`. The node ends when one of its parts does, and names it.

With FIRST, the folder of a node that runs, it is the second node, with a kubelet and containerd
alone. It goes on when a line on its input says that its network has the device `wire`, whose other
end is in the network of the first one.
HELP
}

if (($# != 2 && $# != 3)); then
  usage >&2
  exit 2
fi

# The namespace is a network of its own, so its addresses are free.
readonly SERVER=10.200.0.1 SERVICES=10.96.0.0/16
first=''
if (($# == 3)); then
  first="$(realpath "$3")"
  readonly ADDRESS=10.200.0.2 NODE=node-2 PODS=10.244.1.0/24
else
  readonly ADDRESS="$SERVER" NODE=node-1 PODS=10.244.0.0/24
fi
readonly first
here="$(dirname "$(realpath "${BASH_SOURCE[0]}")")"
readonly here

# ---- The file system ----------------------------------------------------------------------------
#
# Programs write to /run, /var/lib and /var/log. Here these folders are the node's own, so that the
# machine's are not changed.

mount --make-rprivate /
work="$(realpath "$2")"
mkdir -p "$work"/{disk/lib,disk/log,log}
mkdir "$work/run"
mount -t tmpfs -o mode=755 tmpfs "$work/run"
mkdir -p "$work/run"/{programs,work}
mount --bind "$(realpath "$1")" "$work/run/programs"
mount --bind "$work" "$work/run/work"
cp "$here/names.py" "$work"
mount --rbind "$work/run" /run
mount --bind /run/work/disk/lib /var/lib
mount --bind /run/work/disk/log /var/log
readonly work=/run/work programs=/run/programs
export PATH="$programs/bin:$PATH"
cd "$work"

# The kubelet sets these for the whole machine. Files take the place of the settings, so that they
# stay as they are.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file="$work/disk/setting-$(tr / - <<<"${setting%=*}")"
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done

# ---- The network --------------------------------------------------------------------------------

ip link set lo up
if [[ -n "$first" ]]; then
  read -r
  ip address add "$ADDRESS/24" dev wire
  ip link set wire up
  ip route add default via "$SERVER"
else
  ip link add node type bridge
  ip address add "$ADDRESS/24" dev node
  ip link set node up
  # There is no network outside, but programs find their own address by the default route.
  ip route add default dev node
fi

# ---- Configuration ------------------------------------------------------------------------------

configure_server() {
  local token
  token="$(openssl rand -hex 16)"
  umask 077
  openssl genrsa -out accounts.key 2048 2>/dev/null
  echo "$token,operator,operator,system:masters" >tokens.csv
  cat >kubeconfig <<YAML
apiVersion: v1
kind: Config
clusters:
  - name: here
    cluster:
      server: https://$ADDRESS:6443
      certificate-authority: $1/apiserver/apiserver.crt
users:
  - name: operator
    user: {token: $token}
contexts:
  - name: here
    context: {cluster: here, user: operator}
current-context: here
YAML
  umask 022
}
if [[ -n "$first" ]]; then
  cp "$first/kubeconfig" .
else
  configure_server "$(realpath "$2")"
fi

mkdir network
cat >network/10-pods.conflist <<JSON
{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "pods",
      "isGateway": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "$PODS"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
JSON

cat >containerd.toml <<TOML
version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  # To make a process less likely to be killed for memory than its parent needs a capability that
  # containers may lack.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "$programs/bin/cni"
  conf_dir = "$work/network"
TOML

echo "nameserver $SERVER" >resolv.conf
cat >kubelet.yaml <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ADDRESS
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
clusterDomain: cluster.local
clusterDNS: [$SERVER]
resolvConf: $work/resolv.conf
failSwapOn: false
# All containers are in this group, which cluster.py removes.
cgroupDriver: cgroupfs
cgroupRoot: /$(basename "$(realpath "$2")")
cgroupsPerQOS: false
enforceNodeAllocatable: []
# No Services with an address of their own, so no packet filter.
makeIPTablesUtilChains: false
# How soon a changed Secret is in a pod; the default is a minute.
syncFrequency: 2s
# Disk and memory belong to the machine, which others fill too.
evictionHard: {memory.available: 20Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
volumePluginDir: /var/lib/kubelet-plugins
YAML

# ---- Programs -----------------------------------------------------------------------------------

declare -A names
run() { # program argument...
  "$@" >"log/$(basename "$1")" 2>&1 </dev/null &
  names[$!]="$(basename "$1")"
}

run_server() {
  run etcd --data-dir=/var/lib/etcd --unsafe-no-fsync
  run kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --bind-address="$ADDRESS" --advertise-address="$ADDRESS" --cert-dir=apiserver \
    --token-auth-file=tokens.csv --authorization-mode=RBAC \
    --service-cluster-ip-range="$SERVICES" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file=accounts.key --service-account-signing-key-file=accounts.key \
    --kubelet-preferred-address-types=InternalIP
  # The other programs give up if the server does not answer for a while, and nothing reports that
  # it does.
  until kubectl --kubeconfig=kubeconfig get --raw=/readyz >log/readyz 2>&1; do
    sleep 0.5
  done
  run kube-controller-manager --kubeconfig=kubeconfig --leader-elect=false \
    --service-account-private-key-file=accounts.key --root-ca-file=apiserver/apiserver.crt \
    --bind-address=127.0.0.1
  run kube-scheduler --kubeconfig=kubeconfig --leader-elect=false --bind-address=127.0.0.1
  run python3 names.py "https://$ADDRESS:6443" "$ADDRESS" apiserver/apiserver.crt tokens.csv
}

run containerd --config=containerd.toml
if [[ -z "$first" ]]; then
  run_server
fi
run kubelet --kubeconfig=kubeconfig --config=kubelet.yaml --hostname-override="$NODE" \
  --node-ip="$ADDRESS" --cert-dir=/var/lib/kubelet-certificates --container-runtime=remote \
  --container-runtime-endpoint=unix:///run/containerd/containerd.sock

ended=
wait -n -p ended || true
echo "node: ${names[$ended]:-a part} has ended; log/ has its last words" >&2
exit 1
