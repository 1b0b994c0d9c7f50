# That an apiserver shows Gatepost a client certificate, by the very commands and files of docs/beside-an-apiserver.md; and
# that one which shows none is kept out, and Gatepost's log says why and what to do.

mutual() {
  echo "======== mTLS: kube-apiserver shows Gatepost a client certificate"
  mkdir -p "$work/mutual"
  documented beside-an-apiserver '-subj /CN=kube-apiserver' >"$work/mutual/commands"
  (cd "$work/mutual" && bash -eu ./commands) >"$work/mutual.log" 2>&1 || broken "the chapter's openssl command"
  begin_gatepost mutual --client-ca "$work/mutual/apiserver.crt" --client-name kube-apiserver
  registration api >"$work/gatepost.yaml"
  kubectl apply -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
  eventually "mTLS: an apiserver that shows no certificate is kept out" refused_for 'certificate required' asking nobody anything
  check "mTLS: and Gatepost's log says so" grep -q "a caller's TLS handshake failed.*peer sent no certificates.*127.0.0.1:9440" "$work/gatepost.log"

  documented beside-an-apiserver 'kind: Config' >"$work/mutual/gatepost.kubeconfig"
  documented beside-an-apiserver kubeConfigFile >"$work/admission.yaml"
  check "mTLS: the chapter's kubeconfig names our URL" grep -q "name: $front " "$work/mutual/gatepost.kubeconfig"
  check "mTLS: kube-apiserver stops" kube/cluster.sh stop "$work/cluster"
  start_cluster
  check "mTLS: with the chapter's files hooks are asked" replay await no
  allows "mTLS: what they allow is allowed" asking canary yes
  refuses "mTLS: what they refuse is refused" 'canary.e2e.gatepost.dev' asking canary yes 'canary={"allowed": false}'
  kubectl delete -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "unregistering Gatepost"
  mode=mTLS end_gatepost
}
