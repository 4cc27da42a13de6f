{{/* Name of the DaemonSet, its account, configuration, roles and policies. */}}
{{- define "braid.name" -}}
{{ .Values.nameOverride | default "braid" }}
{{- end }}

{{/* Namespace of all objects, whatever the namespace of the release: the agent, the policies and the documented commands
     name it. */}}
{{- define "braid.namespace" -}}
kube-system
{{- end }}

{{/* User name of the account, which the policies match. */}}
{{- define "braid.user" -}}
system:serviceaccount:{{ include "braid.namespace" . }}:{{ include "braid.name" . }}
{{- end }}

{{- define "braid.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* "true" if the release has this kind of objects: with crds.create, unless the cluster has it from elsewhere. */}}
{{- define "braid.hasKind" -}}
{{- $top := index . 0 -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (index . 1) -}}
{{- $release := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found -}}
{{- if and $top.Values.crds.create (or (not $found) (eq $release $top.Release.Name)) -}}
true
{{- end -}}
{{- end }}

{{/* Folders of each distribution that differ from kubeadm's. */}}
{{- define "braid.folders" -}}
k3s:
  cniBinDir: /var/lib/rancher/k3s/data/cni
  cniConfDir: /var/lib/rancher/k3s/agent/etc/cni/net.d
microk8s:
  cniBinDir: /var/snap/microk8s/current/opt/cni/bin
  cniConfDir: /var/snap/microk8s/current/args/cni-network
  kubeletRootDir: /var/snap/microk8s/common/var/lib/kubelet
{{- end }}

{{/* Folder of the node by the name of its value: the value, else the distribution's, else kubeadm's. */}}
{{- define "braid.folder" -}}
{{- $values := (index . 0).Values -}}
{{- $name := index . 1 -}}
{{- $usual := dict "cniBinDir" "/opt/cni/bin" "cniConfDir" "/etc/cni/net.d" "kubeletRootDir" "/var/lib/kubelet" -}}
{{- $of := get (include "braid.folders" . | fromYaml) $values.distribution | default dict -}}
{{ get $values $name | default (get $of $name) | default (get $usual $name) }}
{{- end }}

{{/* Arguments of the agent beside its verb, for names and folders other than its defaults. */}}
{{- define "braid.arguments" -}}
{{- $name := include "braid.name" . -}}
{{- $folder := include "braid.folder" (list . "cniConfDir") -}}
{{- $kubelet := include "braid.folder" (list . "kubeletRootDir") -}}
{{- if ne $name "braid" }}, --config-map={{ include "braid.namespace" . }}/{{ $name }}, --service-account={{ include "braid.namespace" . }}/{{ $name }}{{ end }}
{{- if ne $folder "/etc/cni/net.d" }}, --conflist={{ $folder }}/00-braid.conflist, --call-kubeconfig={{ $folder }}/braid.d/kubeconfig{{ end }}
{{- if ne $kubelet "/var/lib/kubelet" }}, --kubelet-root-dir={{ $kubelet }}{{ end }}
{{- end }}

{{/* Patch of the DaemonSet with which its pods remove braid from the nodes: deploy/remove.yaml with the names and folders
     of the values. */}}
{{- define "braid.removal" -}}
{{- $bin := include "braid.folder" (list . "cniBinDir") -}}
{{- $conf := include "braid.folder" (list . "cniConfDir") -}}
spec:
  template:
    spec:
      initContainers:
        - name: install
          args:
            - install
            - --bin-dir=/host{{ $bin }}
            - --root=/host
            - --kubeconfig={{ $conf }}/braid.d/kubeconfig
            - --conflist={{ $conf }}/00-braid.conflist
            - --remove
          volumeMounts:
            - name: plugins
              mountPath: /host{{ $bin }}
            - name: configurations
              mountPath: /host{{ $conf }}
      containers:
        - name: agent
          args: [agent{{ include "braid.arguments" . }}, --remove]
{{- end }}
