//! braid on the folders of distributions. The containers have arguments, folders and capabilities of
//! the chart's `DaemonSet`, and see nothing else of the node.

use super::{Agent, Pair, await_true, is_ready, serde_json_of};
use crate::json;
use braid_testbed::chart;
use braid_tests::{Value, binary};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Address of the first node, which the kubelet puts into the arguments.
const HOST_IP: &str = "192.0.2.1";

/// Folders of a node that exist before braid, and parts that nothing can write.
struct Distribution {
    name: &'static str,
    /// Script that makes the node's folders.
    node: &'static str,
    plugins: &'static str,
    configurations: &'static str,
    /// Configuration of the runtime, in which `braid install` finds the folders by itself.
    runtime: &'static str,
    /// Folder of the kubelet, if it is not the usual one.
    kubelet: Option<&'static str>,
}

const K3S: Distribution = Distribution {
    name: "k3s",
    node: "mkdir -p /var/lib/rancher/k3s/data/cni /var/lib/rancher/k3s/agent/etc/cni/net.d /run/k3s/containerd
        touch /run/k3s/containerd/containerd.sock
        cp /bin/true /var/lib/rancher/k3s/data/cni/cni
        ln -s cni /var/lib/rancher/k3s/data/cni/bridge",
    plugins: "/var/lib/rancher/k3s/data/cni",
    configurations: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    runtime: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    kubelet: None,
};

const RKE2: Distribution = Distribution {
    name: "rke2",
    node: "mount -t tmpfs none /opt
        mkdir -p /opt/cni/bin /etc/cni/net.d /run/k3s/containerd
        touch /run/k3s/containerd/containerd.sock
        cp /bin/true /opt/cni/bin/bridge",
    plugins: "/opt/cni/bin",
    configurations: "/etc/cni/net.d",
    runtime: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    kubelet: None,
};

/// A revision of the snap is behind the link `current`.
const MICROK8S: Distribution = Distribution {
    name: "microk8s",
    node: "mkdir /run/var
        mount --rbind /var /run/var
        mount -t tmpfs none /var
        for path in /run/var/*; do
            if [ -L $path ]; then cp -P $path /var; else mkdir /var/${path##*/}; mount --rbind $path /var/${path##*/}; fi
        done
        mkdir -p /var/snap/microk8s/7/args/cni-network /var/snap/microk8s/7/opt/cni/bin /var/snap/microk8s/common/run
        ln -s 7 /var/snap/microk8s/current
        mkdir -p /var/snap/microk8s/common/var/lib/kubelet
        touch /var/snap/microk8s/common/run/containerd.sock
        cp /bin/true /var/snap/microk8s/7/opt/cni/bin/bridge",
    plugins: "/var/snap/microk8s/current/opt/cni/bin",
    configurations: "/var/snap/microk8s/current/args/cni-network",
    runtime: "/var/snap/microk8s/current/args/containerd.toml",
    kubelet: Some("/var/snap/microk8s/common/var/lib/kubelet"),
};

/// Only some folders can be written, each a file system of its own.
const TALOS: Distribution = Distribution {
    name: "talos",
    node: "mount -t tmpfs none /opt
        mkdir -p /opt/cni/bin /etc/cni/net.d /run/containerd
        touch /run/containerd/containerd.sock
        cp /bin/true /opt/cni/bin/bridge",
    plugins: "/opt/cni/bin",
    configurations: "/etc/cni/net.d",
    runtime: "/etc/cri/containerd.toml",
    kubelet: None,
};

impl Distribution {
    /// Makes the node's folders. Afterwards `/` and `/etc` cannot be written.
    fn make(&self) {
        let run = |script: &str| {
            let output = Command::new("sh")
                .args(["-ec", script])
                .output()
                .expect("sh");
            assert!(output.status.success(), "{}: {output:?}", self.name);
        };
        run("mount -t tmpfs none /etc/cni");
        run(self.node);
        let runtime = Path::new(self.runtime);
        fs::create_dir_all(runtime.parent().expect("a folder")).expect("a folder");
        let section = "plugins.\"io.containerd.cri.v1.runtime\".cni";
        let text = format!(
            "version = 3\n[{section}]\nbin_dirs = [{:?}]\nconf_dir = {:?}\n",
            self.plugins, self.configurations
        );
        fs::write(runtime, text).expect("the runtime's configuration");
        if !self.plugins.starts_with("/opt") {
            run("mount -t tmpfs -o ro none /opt");
        }
        run("mount -o remount,bind,ro /etc; mount -o remount,bind,ro /");
        assert!(fs::write("/usr/braid", "").is_err() && fs::write("/etc/braid", "").is_err());
    }
}

/// A container of the chart's `DaemonSet`.
struct Container {
    spec: Value,
    volumes: Value,
}

impl Container {
    /// Returns the containers `install` and `agent` of a rendered `DaemonSet`.
    fn both(set: &Value) -> [Self; 2] {
        let pod = &set["spec"]["template"]["spec"];
        ["initContainers", "containers"].map(|kind| Self {
            spec: pod[kind][0].clone(),
            volumes: pod["volumes"].clone(),
        })
    }

    /// Replaces the arguments and adds the mounts of a patch.
    fn patched(&self, patch: &Value) -> Self {
        let mut spec = self.spec.clone();
        spec["args"] = patch["args"].clone();
        let more = patch["volumeMounts"].as_array().into_iter().flatten();
        let mounts = spec["volumeMounts"].as_array_mut().expect("mounts");
        for mount in more {
            mounts.retain(|known| known["mountPath"] != mount["mountPath"]);
            mounts.push(mount.clone());
        }
        Self {
            spec,
            volumes: self.volumes.clone(),
        }
    }

    /// Returns the script that mounts the container's root at /mnt, with the node's folders that the
    /// container has, and starts the arguments of the script there.
    fn script(&self) -> String {
        let mut script = "set -e
            mount -t tmpfs none /mnt
            mkdir -p /mnt/usr /mnt/proc /mnt/sys /mnt/dev /mnt/run /mnt/etc
            for path in /bin /sbin /lib /lib64; do
                if [ -L $path ]; then cp -P $path /mnt; elif [ -e $path ]; then mkdir /mnt$path; mount --rbind $path /mnt$path; fi
            done
            for path in /usr /proc /sys /dev; do mount --rbind $path /mnt$path; done
            for name in braid braid-agent; do touch /mnt/$name; mount --bind $PROGRAMS/$name /mnt/$name; done
            for path in /run/kubeconfig /run/ca.crt; do if [ -e $path ]; then cp $path /mnt/run; fi; done\n"
            .to_owned();
        let volumes = self.volumes.as_array().expect("volumes");
        let mut mounts = self.spec["volumeMounts"]
            .as_array()
            .cloned()
            .expect("mounts");
        // A runtime mounts a folder before those in it.
        mounts.sort_by_key(|mount| mount["mountPath"].to_string());
        for mount in mounts {
            let mut volume = volumes.iter().filter(|it| it["name"] == mount["name"]);
            let host = &volume.next().expect("a volume")["hostPath"];
            let text = |value: &Value| value.as_str().expect("a path").to_owned();
            let (from, to) = (text(&host["path"]), text(&mount["mountPath"]));
            if host["type"] == "DirectoryOrCreate" {
                writeln!(script, "mkdir -p {from}").expect("text");
            }
            writeln!(script, "mkdir -p /mnt{to}; mount --rbind {from} /mnt{to}").expect("text");
            if mount["readOnly"] == true {
                writeln!(script, "mount -o remount,bind,ro /mnt{to}").expect("text");
            }
        }
        let mut bounding = "-all".to_owned();
        let capabilities = &self.spec["securityContext"]["capabilities"];
        assert_eq!(capabilities["drop"], json!(["ALL"]));
        for name in capabilities["add"].as_array().into_iter().flatten() {
            write!(
                bounding,
                ",+{}",
                name.as_str().expect("a name").to_lowercase()
            )
            .expect("text");
        }
        assert_eq!(self.spec["securityContext"]["readOnlyRootFilesystem"], true);
        script
            + "mount -o remount,bind,ro /mnt\n"
            + &format!(
                "exec chroot /mnt setpriv --bounding-set={bounding} --inh-caps=-all --no-new-privs /braid \"$@\""
            )
    }

    /// Returns the command that runs the container, with more arguments.
    fn command(&self, more: &[String]) -> Command {
        let arguments = self.spec["args"].as_array().expect("arguments");
        let text = |it: &Value| {
            it.as_str()
                .expect("an argument")
                .replace("$(HOST_IP)", HOST_IP)
        };
        let arguments = arguments.iter().map(text);
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &self.script(), "sh"])
            .args(arguments)
            .args(more)
            .env("PROGRAMS", binary::braid().parent().expect("a folder"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the container to its end and returns its output.
    #[track_caller]
    fn run(&self) -> String {
        let output = self.command(&[]).output().expect("unshare");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// Starts the container `agent` on the first node.
fn start(pair: &Pair, container: &Container) -> Agent {
    let namespace = &pair.world.namespace;
    let create = ["create", "token", "agent", "-n", namespace];
    let token = pair.world.server.kubectl(&create, None);
    let kubeconfig = pair.world.kubeconfig(&json!({"token": token.trim()}));
    let more = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--node-name={}", pair.names[0]),
        format!("--config-map={}", pair.config_map()),
        format!("--service-account={namespace}/agent"),
        "--mode=direct".to_owned(),
    ];
    let child = container.command(&more).spawn().expect("the agent starts");
    Agent { child }
}

/// Runs the chart's containers on a node of the distribution, attaches a pod, and removes braid.
fn try_on(it: &Distribution, net: u8) {
    let test = format!("folders-{}", it.name);
    if let Some(why) = chart::missing() {
        braid_tests::feature::tell_skip(&format!("api::{test}"), &why);
        return;
    }
    let values = [format!("--set=distribution={}", it.name)];
    let rendered = chart::render(&values).expect("objects");
    let removal = chart::removal(&values).expect("a patch");
    let objects = chart::objects(&rendered).expect("objects");
    let set = objects.iter().find(|object| object["kind"] == "DaemonSet");
    let [install, agent] = Container::both(set.expect("a DaemonSet"));
    let Some(pair) = Pair::new(&test, net) else {
        return;
    };
    let sandbox = &pair.world.sandbox;
    it.make();
    install.run();
    let program = format!("{}/braid", it.plugins);
    let bridge = fs::read_to_string(format!("{}/bridge", it.plugins)).expect("a name");
    assert_eq!(bridge, format!("#!{program}\n"));
    let said = sandbox.run(&format!("{program} install --dry-run"));
    assert!(
        said.contains(&format!("{}: nothing to do", it.plugins)),
        "{said}"
    );
    let running = start(&pair, &agent);
    await_true("readiness", is_ready);
    let conflist = format!("{}/00-braid.conflist", it.configurations);
    let list = serde_json_of(&conflist);
    let entry = &list["plugins"][0];
    let kubeconfig = format!("{}/braid.d/kubeconfig", it.configurations);
    assert_eq!(entry["kubeconfig"], kubeconfig.as_str());
    let user = &serde_json_of(&kubeconfig)["users"][0]["user"];
    let token = user["tokenFile"].as_str().expect("a path");
    assert!(fs::exists(token).expect("readable"), "{token}");
    assert_eq!(
        entry.get("kubeletRootDir").and_then(Value::as_str),
        it.kubelet
    );
    let pod = sandbox.pod("p");
    let mut conf = entry.clone();
    conf["name"] = list["name"].clone();
    conf["cniVersion"] = list["cniVersion"].clone();
    let call = sandbox.call("braid", &pod, conf).by(&program);
    let result = call.add().result();
    let address = result["ips"][0]["address"].as_str().expect("an address");
    assert!(address.starts_with(&format!("10.{net}.1.")), "{address}");
    call.del().ok();
    running.stop();
    remove(&pair, &[install, agent], &removal);
    assert!(
        !fs::exists(&conflist).expect("readable") && !fs::exists(&kubeconfig).expect("readable")
    );
    assert!(!fs::exists(&program).expect("readable"));
    sandbox.run(&format!("{}/bridge", it.plugins));
    if it.configurations != "/etc/cni/net.d" {
        assert!(!fs::exists("/etc/cni/net.d").expect("readable"));
    }
    await_true("an empty folder", || {
        fs::read_dir("/run/braid").expect("a folder").count() == 0
    });
}

/// Runs the containers with the patch that the chart's notes print.
fn remove(pair: &Pair, [install, agent]: &[Container; 2], patch: &str) {
    let patch: Value = serde_json::from_str(patch).expect("JSON");
    let pod = &patch["spec"]["template"]["spec"];
    install.patched(&pod["initContainers"][0]).run();
    let removing = start(pair, &agent.patched(&pod["containers"][0]));
    await_true("removal", is_ready);
    removing.stop();
}

#[test]
fn braid_works_on_the_folders_of_k3s() {
    try_on(&K3S, 205);
}

#[test]
fn braid_works_on_the_folders_of_rke2() {
    try_on(&RKE2, 206);
}

#[test]
fn braid_works_on_the_folders_of_microk8s() {
    try_on(&MICROK8S, 207);
}

#[test]
fn braid_works_on_the_folders_of_talos() {
    try_on(&TALOS, 208);
}
