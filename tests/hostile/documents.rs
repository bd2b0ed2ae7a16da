//! The densest documents: as much as a body holds of every list, map and text that admission reads.

/// In bytes: the largest body that the webhook reads.
pub(crate) const MAX_BODY: usize = 7 << 20;

/// In bytes: the limit of Kubernetes on all annotations of an object.
/// <https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go>
const MAX_ANNOTATIONS: usize = 256 << 10;

/// A review in which one place is filled.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// What it is full of.
    pub(crate) name: String,
    /// Where it is sent.
    pub(crate) path: &'static str,
    /// The review is itself malformed, so that it may be refused.
    pub(crate) is_malformed: bool,
    /// The review, with [`HOLE`] where it is filled.
    template: String,
    fill: Fill,
    /// In bytes.
    capacity: usize,
}

/// What a document is filled with.
#[derive(Debug, Clone)]
enum Fill {
    /// Elements or members, with commas between; `~` is a number of their own.
    Items(&'static str),
    /// A text, again and again.
    Text(&'static str),
    /// So many of the first round the second, and as many of the third.
    Nested(&'static str, &'static str, &'static str, usize),
    /// This, once.
    Once(String),
}

/// Where a frame is filled.
const PLACEHOLDER: char = '@';

/// The annotation that asks.
const INJECT_ANNOTATION: &str = r#""envoy-drainer.dev/inject":"true""#;

/// A control character that JSON need not escape and that Rust shows in six bytes.
const DELETE: &str = "\u{7f}";

/// In bytes, without escapes: the longest text that admission reads.
const LONGEST_TEXT: usize = 256 << 10;

/// A control character, which takes six bytes wherever JSON is written.
const CONTROL: &str = r"\u0001";

/// A backslash, which takes twice its bytes with each text that it is written into.
const BACKSLASH: &str = r"\\";

/// All documents.
pub(crate) fn all() -> Vec<Document> {
    let pods: Vec<_> = pods();
    let injected = pods
        .iter()
        .map(|pod| pod.in_review("/inject", "%", "", "v1", "Pod"));
    let template = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"w"},"spec":{"template":%}}"#;
    let advised = pods
        .iter()
        .map(|pod| pod.in_review("/workloads", template, "apps", "v1", "Deployment"));
    injected
        .chain(advised)
        .chain(workloads())
        .chain(reviews())
        .collect()
}

/// The review with the largest answer.
pub(crate) fn largest_response_review() -> Vec<u8> {
    let review = bad_values().in_review("/inject", "%", "", "v1", "Pod");
    review.body()
}

/// Pods, each with one place that is filled.
fn pods() -> Vec<PodDocument> {
    let mut pods = Vec::new();
    pods.extend(lists());
    pods.extend(maps());
    pods.extend(texts());
    pods.extend(wrong_types());
    pods.extend(bootstraps());
    pods.extend(annotations_at_the_limit());
    pods.push(expansion());
    pods.push(bad_values());
    pods
}

/// A pod, before it is put into a review.
#[derive(Debug, Clone)]
struct PodDocument {
    name: String,
    template: String,
    fill: Fill,
    capacity: usize,
}

/// Frames of a pod that asks for a drainer.
fn pod_with_inject(container: &str, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}}}},"spec":{{"containers":[{{"name":"envoy"{container}}}]{spec}}}}}"#
    )
}

fn lists() -> Vec<PodDocument> {
    let spec = |list: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}}}},"spec":{{"{list}":[@]}}}}"#
        )
    };
    let affinity = |terms: &str| {
        pod_with_inject(
            "",
            &format!(
                r#","affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":{terms}}}}}}}"#
            ),
        )
    };
    let owners = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}},"ownerReferences":[@]}}}}"#
    );
    let frames = [
        ("containers", spec("containers"), "{}"),
        ("containers that are none", spec("containers"), "0"),
        ("containers that are null", spec("containers"), "null"),
        ("initContainers", spec("initContainers"), "{}"),
        (
            "native sidecars",
            spec("initContainers"),
            r#"{"restartPolicy":"Always"}"#,
        ),
        (
            "Envoys",
            spec("containers"),
            r#"{"name":"envoy","image":"envoy"}"#,
        ),
        (
            "unnamed Envoys",
            spec("containers"),
            r#"{"name":"e~","image":"envoy"}"#,
        ),
        (
            "drainers",
            spec("containers"),
            r#"{"name":"envoy-drainer"}"#,
        ),
        (
            "probes",
            spec("containers"),
            r#"{"readinessProbe":{"httpGet":{"port":1}}}"#,
        ),
        (
            "containers with a port",
            spec("containers"),
            r#"{"ports":[{"containerPort":~}]}"#,
        ),
        ("volumes", pod_with_inject("", r#","volumes":[@]"#), "{}"),
        (
            "volumes of ours",
            pod_with_inject("", r#","volumes":[@]"#),
            r#"{"name":"envoy-drainer"}"#,
        ),
        (
            "unknown lists of objects",
            pod_with_inject("", r#","x":[@]"#),
            r#"{"":0}"#,
        ),
        (
            "unknown lists of numbers",
            pod_with_inject("", r#","x":[@]"#),
            "0",
        ),
        ("env", pod_with_inject(r#","env":[@]"#, ""), "{}"),
        ("ports", pod_with_inject(r#","ports":[@]"#, ""), "{}"),
        (
            "ports of the drainer",
            pod_with_inject(r#","ports":[@]"#, ""),
            r#"{"containerPort":9902}"#,
        ),
        (
            "volumeMounts",
            pod_with_inject(r#","volumeMounts":[@]"#, ""),
            "{}",
        ),
        (
            "volumeMounts with a path",
            pod_with_inject(r#","volumeMounts":[@]"#, ""),
            r#"{"mountPath":"/~"}"#,
        ),
        ("command", pod_with_inject(r#","command":[@]"#, ""), r#""""#),
        ("args", pod_with_inject(r#","args":[@]"#, ""), r#""""#),
        (
            "escaped args",
            pod_with_inject(r#","args":[@]"#, ""),
            r#""\n""#,
        ),
        (
            "args of one letter",
            pod_with_inject(r#","args":[@]"#, ""),
            r#""\u0061""#,
        ),
        ("affinity's terms", affinity("[@]"), "{}"),
        (
            "affinity's expressions",
            affinity(r#"[{"matchExpressions":[@]}]"#),
            "{}",
        ),
        (
            "affinity's values",
            affinity(
                r#"[{"matchExpressions":[{"key":"kubernetes.io/os","operator":"In","values":[@]}]}]"#,
            ),
            r#""windows""#,
        ),
        ("ownerReferences", owners.clone(), "{}"),
        (
            "Jobs as owners",
            owners,
            r#"{"kind":"Job","apiVersion":"batch/v1"}"#,
        ),
        ("pods", r#"[@]"#.to_owned(), "{}"),
        (
            "spec again and again",
            format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}}}},@}}"#),
            r#""spec":{}"#,
        ),
        (
            "containers again and again",
            pod_with_inject("", ",@"),
            r#""containers":[]"#,
        ),
        (
            "annotations again and again",
            format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}},@}}}}"#),
            r#""annotations":{}"#,
        ),
    ];
    let wide = [
        (
            "containers with many of each",
            spec("containers"),
            wide_container(),
        ),
        (
            "initContainers with many of each",
            spec("initContainers"),
            wide_container(),
        ),
    ];
    let frames =
        frames.map(|(name, frame, unit)| PodDocument::new(name, &frame, Fill::Items(unit)));
    let wide = wide.map(|(name, frame, unit)| {
        let containers = vec![unit; 1_000].join(",");
        PodDocument::new(name, &frame, Fill::Once(containers))
    });
    let deep = [
        ("unknown depth", pod_with_inject("", r#","x":@"#)),
        ("known depth", spec("containers")),
        (
            "metadata's depth",
            format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}},"labels":@}}}}"#),
        ),
    ]
    .map(|(name, frame)| PodDocument::new(name, &frame, Fill::Nested("[", "", "]", 200_000)));
    let deeper = PodDocument::new(
        "as deep as can be",
        &pod_with_inject("", r#","x":@"#),
        Fill::Nested("[", "", "]", MAX_BODY / 2 - 512),
    );
    let objects = PodDocument::new(
        "objects in objects",
        &pod_with_inject("", r#","x":@"#),
        Fill::Nested(r#"{"":"#, "0", "}", MAX_BODY / 6 - 512),
    );
    frames
        .into_iter()
        .chain(wide)
        .chain(deep)
        .chain([deeper, objects])
        .collect()
}

/// A container with a hundred elements in each of its lists: each list is short, all together are not.
fn wide_container() -> String {
    let list = |unit: &str| vec![unit; 400].join(",");
    format!(
        r#"{{"ports":[{}],"volumeMounts":[{}],"command":[{}],"args":[{}]}}"#,
        list("{}"),
        list("{}"),
        list(r#""""#),
        list(r#""""#)
    )
}

fn maps() -> Vec<PodDocument> {
    let annotations = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},@}}}},"spec":{{"containers":[{{"name":"envoy"}}]}}}}"#
    );
    let labels =
        format!(r#"{{"metadata":{{"labels":{{@}},"annotations":{{{INJECT_ANNOTATION}}}}}}}"#);
    let resources =
        |list: &str| pod_with_inject(&format!(r#","resources":{{"{list}":{{@}}}}"#), "");
    [
        (
            "annotations of ours",
            annotations.clone(),
            r#""envoy-drainer.dev/port":"1""#,
        ),
        (
            "annotations nearly ours",
            annotations.clone(),
            r#""envoy-drainer.dev/drain-timeou~":"""#,
        ),
        (
            "annotations unlike ours",
            annotations.clone(),
            r#""envoy-drainer.dev/~":"""#,
        ),
        (
            "escaped annotations",
            annotations.clone(),
            r#""\u0065nvoy-drainer.dev/~":"\n""#,
        ),
        (
            "annotations with a prefix like ours",
            annotations.clone(),
            r#""envoydrainer.dev/inject~":"""#,
        ),
        ("other annotations", annotations.clone(), r#""~":"""#),
        (
            "escaped values of annotations",
            annotations.clone(),
            r#""~":"\n\n\n\n\n\n\n\n""#,
        ),
        ("empty annotations", annotations.clone(), r#""":"""#),
        (
            "requests to inject",
            annotations.clone(),
            r#""envoy-drainer.dev/inject":"true""#,
        ),
        (
            "statuses",
            annotations,
            r#""envoy-drainer.dev/status":"{}""#,
        ),
        ("labels", labels.clone(), r#""~":"""#),
        ("labels of ours", labels, r#""envoy-drainer.dev/~":"""#),
        (
            "nodeSelector",
            pod_with_inject("", r#","nodeSelector":{@}"#),
            r#""~":"""#,
        ),
        (
            "nodeSelector of systems",
            pod_with_inject("", r#","nodeSelector":{@}"#),
            r#""kubernetes.io/os":"linux""#,
        ),
        ("requests", resources("requests"), r#""~":1"#),
        ("limits", resources("limits"), r#""cpu":1"#),
        (
            "metadata of unknown members",
            format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}},@}}}}"#),
            r#""envoy-drainer.dev/~":0"#,
        ),
    ]
    .map(|(name, frame, unit)| PodDocument::new(name, &frame, Fill::Items(unit)))
    .into()
}

/// A text in each field that is read as one.
fn texts() -> Vec<PodDocument> {
    let annotation = |name: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},"envoy-drainer.dev/{name}":"@"}}}},"spec":{{"containers":[{{"name":"envoy"}}]}}}}"#
        )
    };
    let metadata = |member: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}},{member}}},"spec":{{"containers":[{{"name":"envoy"}}]}}}}"#
        )
    };
    let hook = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},"envoy-drainer.dev/existing-hook":"replace"}}}},"spec":{{"containers":[{{"name":"envoy","lifecycle":{{"preStop":{{"exec":{{"command":["@"]}}}}}}}}]}}}}"#
    );
    let socket = |member: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},"envoy-drainer.dev/admin-address":"unix:/a/b"}}}},"spec":{{"containers":[{{"name":"envoy","volumeMounts":[{{{member}}}]}}]}}}}"#
        )
    };
    let frames = [
        ("name of the container", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true"}},"spec":{"containers":[{"name":"@"}]}}"#.to_owned()),
        ("name of a second container", pod_with_inject("", r#","initContainers":[{"restartPolicy":"Always","name":"@"}]"#)),
        ("image", pod_with_inject(r#","image":"@""#, "")),
        ("image of a container", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true"}},"spec":{"containers":[{"image":"@"}]}}"#.to_owned()),
        ("word of args", pod_with_inject(r#","args":["@"]"#, "")),
        ("--config-yaml", pod_with_inject(r#","args":["--config-yaml","admin: @"]"#, "")),
        ("word of command", pod_with_inject(r#","command":["@"]"#, "")),
        ("name of a port", pod_with_inject(r#","ports":[{"name":"@"}]"#, "")),
        ("protocol", pod_with_inject(r#","ports":[{"containerPort":9902,"protocol":"@"}]"#, "")),
        ("restartPolicy", pod_with_inject(r#","restartPolicy":"@""#, "")),
        ("port of a probe", pod_with_inject(r#","readinessProbe":{"httpGet":{"port":"@"}}"#, "")),
        ("limit of CPU", pod_with_inject(r#","resources":{"limits":{"cpu":"@"}}"#, "")),
        ("name of a volume", pod_with_inject("", r#","volumes":[{"name":"@"}]"#)),
        ("name of the socket's volume", socket(r#""mountPath":"/a","name":"@""#)),
        ("subPath of the socket's volume", socket(r#""mountPath":"/a","subPath":"@""#)),
        ("path of a mount", socket(r#""mountPath":"@""#)),
        ("name of the pod's system", pod_with_inject("", r#","os":{"name":"@"}"#)),
        ("value of a nodeSelector", pod_with_inject("", r#","nodeSelector":{"kubernetes.io/os":"@"}"#)),
        ("key of a nodeSelector", pod_with_inject("", r#","nodeSelector":{"@":"linux"}"#)),
        ("preStop hook", hook),
        ("value of inject", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"@"}}}"#.to_owned()),
        ("value of envoy-container", annotation("envoy-container")),
        ("value of admin-address", annotation("admin-address")),
        ("value of ignore-listeners", annotation("ignore-listeners")),
        ("value of drain-timeout", annotation("drain-timeout")),
        ("value of cpu-limit", annotation("cpu-limit")),
        ("value of status", annotation("status")),
        ("value of a key unlike ours", annotation("x")),
        ("key like ours", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true","envoy-drainer.dev/@":"1"}},"spec":{"containers":[{"name":"envoy"}]}}"#.to_owned()),
        ("key with a prefix like ours", r#"{"metadata":{"annotations":{"envoydrainer@":"1"}},"spec":{"containers":[{"name":"envoy"}]}}"#.to_owned()),
        ("key like ours of a number", metadata(r#""annotations":{"envoy-drainer.dev/@":1}"#)),
        ("value of another annotation", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true","x":"@"}},"spec":{"containers":[{"name":"envoy"}]}}"#.to_owned()),
        ("name of the pod", metadata(r#""name":"@""#)),
        ("generateName of the pod", metadata(r#""generateName":"@""#)),
        ("namespace of the pod", metadata(r#""namespace":"@""#)),
        ("name of the owner", metadata(r#""ownerReferences":[{"controller":true,"uid":"1","kind":"K","apiVersion":"v1","name":"@"}]"#)),
        ("uid of the owner", metadata(r#""ownerReferences":[{"controller":true,"uid":"@","kind":"K","apiVersion":"v1","name":"n"}]"#)),
        ("label of the manager", metadata(r#""labels":{"app.kubernetes.io/managed-by":"@"}"#)),
        ("key of metadata", metadata(r#""envoy-drainer.dev/@":"1""#)),
        ("key of the pod", r#"{"@":1}"#.to_owned()),
        ("unknown text", pod_with_inject("", r#","x":"@""#)),
        ("grace period in digits", pod_with_inject("", r#","terminationGracePeriodSeconds":1@"#)),
        ("port in digits", pod_with_inject(r#","ports":[{"containerPort":1@}]"#, "")),
        ("CPU in digits", pod_with_inject(r#","resources":{"limits":{"cpu":1@}}"#, "")),
        ("fraction of CPU in digits", pod_with_inject(r#","resources":{"limits":{"cpu":1.@}}"#, "")),
        ("unknown digits", pod_with_inject("", r#","x":1@"#)),
    ];
    let digits = |name: &str| name.contains("digits");
    let mut pods = Vec::new();
    for (name, frame) in frames {
        if digits(name) {
            pods.push(PodDocument::new(name, &frame, Fill::Text("9")));
            continue;
        }
        for (how, text) in [("", "x"), ("escaped ", r#"\""#), ("delete in ", DELETE)] {
            pods.push(PodDocument::new(
                &format!("{how}{name}"),
                &frame,
                Fill::Text(text),
            ));
        }
        for (how, escaped) in [
            ("control characters at the limit in ", CONTROL),
            ("backslashes at the limit in ", BACKSLASH),
        ] {
            let text = escaped.repeat(LONGEST_TEXT - overhead(&frame));
            pods.push(PodDocument::new(
                &format!("{how}{name}"),
                &frame,
                Fill::Once(text),
            ));
        }
    }
    pods.extend(repeated_texts());
    pods
}

/// In bytes: how much of a text that has the hole is not the hole.
fn overhead(frame: &str) -> usize {
    let (before, after) = frame
        .split_once(PLACEHOLDER)
        .expect("every frame has a hole");
    let before = before.rsplit('"').next().unwrap_or_default();
    let after = after.split('"').next().unwrap_or_default();
    before.len() + after.len()
}

/// Texts that a patch repeats, of the limit of all texts, and of the limits that names and paths have.
fn repeated_texts() -> Vec<PodDocument> {
    let frame = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},"envoy-drainer.dev/existing-hook":"replace","envoy-drainer.dev/admin-address":"unix:/a/b"}}}},"spec":{{"containers":[@]}}}}"#
    );
    let mount = |name: usize, path: usize| {
        format!(
            r#"{{"name":"{}","mountPath":"/a{}","subPath":"{}"}}"#,
            CONTROL.repeat(name),
            "/".repeat(path - 2),
            CONTROL.repeat(path)
        )
    };
    let container = |name: usize, mount: &str, hook: usize| {
        format!(
            r#"{{"name":"{}","image":"envoy","volumeMounts":[{mount}],"lifecycle":{{"preStop":"{}"}}}}"#,
            BACKSLASH.repeat(name),
            BACKSLASH.repeat(hook)
        )
    };
    let probed = r#",{"readinessProbe":{"tcpSocket":{"port":65535},"periodSeconds":4294967295}}"#;
    let longest = container(63, &mount(63, 4096), 2047);
    [
        (
            "three texts at the limit in a mount",
            container(1, &mount(LONGEST_TEXT, LONGEST_TEXT), 1),
        ),
        (
            "a name of 32,200 backslashes",
            container(32_200, &mount(1, 2), 1),
        ),
        ("names and paths at their limits", longest.clone()),
        (
            "names and paths at their limits, and probes",
            format!("{longest}{}", probed.repeat(1_999)),
        ),
    ]
    .map(|(name, containers)| PodDocument::new(name, &frame, Fill::Once(containers)))
    .into()
}

/// A long text where something else belongs, which a message must not repeat.
fn wrong_types() -> Vec<PodDocument> {
    [
        ("the pod", r#""@""#.to_owned()),
        ("metadata", r#"{"metadata":"@"}"#.to_owned()),
        (
            "annotations",
            r#"{"metadata":{"annotations":"@"}}"#.to_owned(),
        ),
        (
            "ownerReferences",
            r#"{"metadata":{"ownerReferences":"@"}}"#.to_owned(),
        ),
        (
            "controller",
            r#"{"metadata":{"ownerReferences":[{"controller":"@"}]}}"#.to_owned(),
        ),
        ("spec", r#"{"spec":"@"}"#.to_owned()),
        ("containers", r#"{"spec":{"containers":"@"}}"#.to_owned()),
        ("a container", r#"{"spec":{"containers":["@"]}}"#.to_owned()),
        ("ports", pod_with_inject(r#","ports":"@""#, "")),
        (
            "containerPort",
            pod_with_inject(r#","ports":[{"containerPort":"@"}]"#, ""),
        ),
        (
            "securityContext",
            pod_with_inject(r#","securityContext":"@""#, ""),
        ),
        (
            "runAsUser",
            pod_with_inject(r#","securityContext":{"runAsUser":"@"}"#, ""),
        ),
        ("lifecycle", pod_with_inject(r#","lifecycle":"@""#, "")),
        (
            "readinessProbe",
            pod_with_inject(r#","readinessProbe":"@""#, ""),
        ),
        (
            "periodSeconds",
            pod_with_inject(r#","readinessProbe":{"periodSeconds":"@"}"#, ""),
        ),
        ("resources", pod_with_inject(r#","resources":"@""#, "")),
        (
            "limits",
            pod_with_inject(r#","resources":{"limits":"@"}"#, ""),
        ),
        ("hostNetwork", pod_with_inject("", r#","hostNetwork":"@""#)),
        (
            "terminationGracePeriodSeconds",
            pod_with_inject("", r#","terminationGracePeriodSeconds":"@""#),
        ),
        ("affinity", pod_with_inject("", r#","affinity":"@""#)),
    ]
    .map(|(name, frame)| {
        PodDocument::new(&format!("a text for {name}"), &frame, Fill::Text(DELETE))
    })
    .into()
}

/// Bootstraps in `--config-yaml`, of up to 64 KiB.
fn bootstraps() -> Vec<PodDocument> {
    const SIZE: usize = 60 << 10;
    let filled = |unit: &str| unit.repeat(SIZE / unit.len());
    let open: String = (0..60).map(|n| format!("&a{n} [")).collect();
    let yamls = [
        (
            "nested anchors",
            format!(
                "admin: {{}}\nx: {open}{}{}",
                "1,".repeat(20_000),
                "]".repeat(60)
            ),
        ),
        (
            "merge keys",
            format!(
                "admin: {{}}\na: &a {{{}}}\nb:\n{}",
                (0..1000).map(|n| format!("k{n}: 1,")).collect::<String>(),
                "  - <<: *a\n".repeat(1_000)
            ),
        ),
        (
            "aliases",
            format!(
                "admin: {{}}\na: &a [{}]\nb: [{}]",
                "1,".repeat(5_000),
                "*a,".repeat(5_000)
            ),
        ),
        (
            "laughs",
            format!(
                "admin: {{}}\na0: &a0 [1]\n{}",
                (1..60)
                    .map(|n| {
                        let before = n - 1;
                        format!("a{n}: &a{n} [*a{before},*a{before},*a{before},*a{before}]\n")
                    })
                    .collect::<String>()
            ),
        ),
        ("numbers", format!("admin: {{}}\nx: [{}1]", filled("1,"))),
        ("maps", format!("admin: {{}}\nx: [{}1]", filled("{a: b},"))),
        (
            "keys",
            format!(
                "admin: {{}}\n{}",
                (0..6_000).map(|n| format!("k{n}: 1\n")).collect::<String>()
            ),
        ),
        ("depth", format!("admin: {{}}\nx: {}", filled("["))),
        ("a scalar", format!("admin: '{}'", filled("x"))),
        (
            "a scalar of odd characters",
            format!("admin: \"{}\"", filled("\u{7f}")),
        ),
        ("comments", format!("admin: {{}}\n{}", filled("# x\n"))),
        ("documents", format!("admin: {{}}\n{}", filled("---\n"))),
        ("tags", format!("admin: {{}}\nx: [{}1]", filled("!!x 1,"))),
        ("variables", format!("admin: {}", filled("$(A)"))),
        (
            "variables in a path",
            format!(
                "admin: {{address: {{pipe: {{path: '/{}'}}}}}}",
                filled("$(A)")
            ),
        ),
    ];
    let frame = pod_with_inject(r#","args":["--config-yaml","@"]"#, "");
    yamls
        .map(|(name, yaml)| {
            let text = serde_json::Value::from(yaml).to_string();
            let inner = text[1..text.len() - 1].to_owned();
            PodDocument::new(
                &format!("--config-yaml of {name}"),
                &frame,
                Fill::Once(inner),
            )
        })
        .into()
}

/// As many annotations as the API server takes, to the byte.
fn annotations_at_the_limit() -> Vec<PodDocument> {
    let frame = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},@}}}},"spec":{{"containers":[{{"name":"envoy"}}]}}}}"#
    );
    let asks = "envoy-drainer.dev/inject".len() + "true".len();
    let one = format!(r#""x":"{}""#, "x".repeat(MAX_ANNOTATIONS - asks - 1));
    // Ten bytes each, and the last one the rest.
    let room = MAX_ANNOTATIONS - asks;
    let mut many: Vec<_> = (0..room / 10 - 1)
        .map(|n| format!(r#""k{n:07}":"xx""#))
        .collect();
    many.push(format!(
        r#""y":"{}""#,
        "y".repeat(room - many.len() * 10 - 1)
    ));
    vec![
        PodDocument::new("one annotation at the limit", &frame, Fill::Once(one)),
        PodDocument::new(
            "many annotations at the limit",
            &frame,
            Fill::Once(many.join(",")),
        ),
    ]
}

/// Sixteen variables that double a text, and thousands that hold all of it.
fn expansion() -> PodDocument {
    let first = format!(r#"{{"name":"A0","value":"{}"}}"#, "x".repeat(2));
    let doubling = (1..16).map(|n| {
        let before = n - 1;
        format!(r#"{{"name":"A{n}","value":"$(A{before})$(A{before})"}}"#)
    });
    let holding = (0..20_000).map(|n| format!(r#"{{"name":"B{n}","value":"$(A15)"}}"#));
    let env: Vec<_> = [first].into_iter().chain(doubling).chain(holding).collect();
    let frame = pod_with_inject(r#","args":["--config-yaml","admin: $(A0)"],"env":[@]"#, "");
    PodDocument::new("variables that double", &frame, Fill::Once(env.join(",")))
}

/// Every setting with a value that it cannot have and that is repeated.
fn bad_values() -> PodDocument {
    let names = [
        "admin-address",
        "port",
        "drain-delay",
        "min-drain-duration",
        "drain-timeout",
        "idle-exit",
        "quiet-period",
        "exit-at-connections",
        "native-sidecar",
        "existing-hook",
        "cpu-request",
        "memory-request",
        "cpu-limit",
        "memory-limit",
    ];
    let value = DELETE.repeat(1024);
    let bad = names.map(|name| format!(r#""envoy-drainer.dev/{name}":"{value}""#));
    let unknown = (0..60).map(|n| format!(r#""envoy-drainer.dev/drain-timeou{n}":"""#));
    let all: Vec<_> = bad.into_iter().chain(unknown).collect();
    let frame = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},@}}}},"spec":{{"containers":[{{"name":"envoy"}}]}}}}"#
    );
    PodDocument::new("bad values", &frame, Fill::Once(all.join(",")))
}

/// Objects that are no pods.
fn workloads() -> Vec<Document> {
    const SEA: &str = r#"{"":0}"#;
    let kinds = [
        (
            "apps",
            "v1",
            "StatefulSet",
            r#"{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"template":%}}"#,
        ),
        (
            "apps",
            "v1",
            "DaemonSet",
            r#"{"apiVersion":"apps/v1","kind":"DaemonSet","spec":{"template":%}}"#,
        ),
        (
            "apps",
            "v1",
            "ReplicaSet",
            r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","spec":{"template":%}}"#,
        ),
        (
            "batch",
            "v1",
            "Job",
            r#"{"apiVersion":"batch/v1","kind":"Job","spec":{"template":%}}"#,
        ),
        (
            "batch",
            "v1",
            "CronJob",
            r#"{"apiVersion":"batch/v1","kind":"CronJob","spec":{"jobTemplate":{"spec":{"template":%}}}}"#,
        ),
        ("", "v1", "Pod", "%"),
        (
            "argoproj.io",
            "v1alpha1",
            "Rollout",
            r#"{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","spec":{"template":%}}"#,
        ),
    ];
    let dense = [
        PodDocument::new(
            "containers",
            &pod_with_inject("", r#","initContainers":[@]"#),
            Fill::Items("{}"),
        ),
        PodDocument::new(
            "annotations nearly ours",
            &format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},@}}}}}}"#),
            Fill::Items(r#""envoy-drainer.dev/drain-timeou~":"""#),
        ),
        PodDocument::new(
            "a sea",
            &pod_with_inject("", r#","x":[@]"#),
            Fill::Items(SEA),
        ),
    ];
    let mut documents = Vec::new();
    for (group, version, kind, frame) in kinds {
        for pod in &dense {
            let pod = PodDocument {
                name: format!("{} of a {kind}", pod.name),
                ..pod.clone()
            };
            documents.push(pod.in_review("/workloads", frame, group, version, kind));
        }
    }
    let object =
        |members: &str| format!(r#"{{"apiVersion":"apps/v1","kind":"Deployment",{members}}}"#);
    let long = "x".repeat(60);
    let unlike = format!(r#""envoy-drainer.dev/{long}~":"""#);
    let unlike: &'static str = unlike.leak();
    let rollout = |members: &str| {
        format!(r#"{{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout",{members}}}"#)
    };
    let asks = r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true"}}}"#;
    let whole = [
        (
            "object's sea of objects",
            object(r#""x":[@]"#),
            Fill::Items(SEA),
        ),
        (
            "object's sea of numbers",
            object(r#""x":[@]"#),
            Fill::Items("0"),
        ),
        (
            "object's depth",
            object(r#""x":@"#),
            Fill::Nested("[", "", "]", 200_000),
        ),
        (
            "object's annotations",
            object(r#""metadata":{"annotations":{@}}"#),
            Fill::Items(unlike),
        ),
        (
            "object's settings",
            object(r#""metadata":{"annotations":{@}}"#),
            Fill::Items(r#""envoy-drainer.dev/port":"""#),
        ),
        (
            "object's labels",
            object(r#""metadata":{"labels":{@}}"#),
            Fill::Items(unlike),
        ),
        (
            "object's metadata",
            object(r#""metadata":{@}"#),
            Fill::Items(unlike),
        ),
        (
            "object's owners",
            object(r#""metadata":{"ownerReferences":[@]}"#),
            Fill::Items("{}"),
        ),
        (
            "object's metadata again and again",
            object("@"),
            Fill::Items(r#""metadata":{}"#),
        ),
        (
            "template's annotations",
            object(r#""spec":{"template":{"metadata":{"annotations":{@}}}}"#),
            Fill::Items(unlike),
        ),
        (
            "many maps of annotations",
            object(r#""x":[@]"#),
            Fill::Items(r#"{"annotations":{"envoy-drainer.dev/port":""}}"#),
        ),
        (
            "many likely templates",
            rollout(r#""x":[@]"#),
            Fill::Items(r#"{"spec":{"containers":[]}}"#),
        ),
        (
            "many templates that ask",
            rollout(r#""x":[@]"#),
            Fill::Items(asks),
        ),
        (
            "a long kind",
            r#"{"apiVersion":"v1","kind":"@"}"#.to_owned(),
            Fill::Text(DELETE),
        ),
        (
            "a long name",
            object(r#""metadata":{"name":"@"}"#),
            Fill::Text(DELETE),
        ),
        (
            "a text for a template",
            object(r#""spec":{"template":"@"}"#),
            Fill::Text(DELETE),
        ),
        (
            "a text for a spec",
            object(r#""spec":"@""#),
            Fill::Text(DELETE),
        ),
        (
            "a list of objects",
            r#"{"apiVersion":"v1","kind":"List","items":[@]}"#.to_owned(),
            Fill::Items(r#"{"apiVersion":"v1","kind":"Pod"}"#),
        ),
        (
            "an array of objects",
            "[@]".to_owned(),
            Fill::Items(r#"{"apiVersion":"v1","kind":"Pod"}"#),
        ),
    ];
    let whole = whole.map(|(name, frame, fill)| {
        PodDocument::new(name, &frame, fill).in_review(
            "/workloads",
            "%",
            "apps",
            "v1",
            "Deployment",
        )
    });
    documents.extend(whole);
    // Not so large: what the API server itself would take.
    documents.push(
        PodDocument {
            capacity: 5 << 19,
            ..PodDocument::new(
                "30,000 keys under our prefix",
                &object(r#""metadata":{"annotations":{@}}"#),
                Fill::Items(unlike),
            )
        }
        .in_review("/workloads", "%", "apps", "v1", "Deployment"),
    );
    documents
}

/// Reviews that are themselves malformed, whatever they are about.
fn reviews() -> Vec<Document> {
    let review = |members: &str| {
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",{members}}}"#)
    };
    let request = |members: &str| {
        review(&format!(
            r#""request":{{"uid":"u","kind":{{"group":"","version":"v1","kind":"Pod"}},"operation":"CREATE",{members}}}"#
        ))
    };
    let table = [
        ("no JSON", "@".to_owned(), Fill::Text("x")),
        ("a text", r#""@""#.to_owned(), Fill::Text(DELETE)),
        ("a list", "[@]".to_owned(), Fill::Items("{}")),
        (
            "a review's depth",
            "@".to_owned(),
            Fill::Nested("[", "", "]", MAX_BODY / 2),
        ),
        (
            "a long kind of review",
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"@"}"#.to_owned(),
            Fill::Text(DELETE),
        ),
        (
            "a text for a request",
            review(r#""request":"@""#),
            Fill::Text(DELETE),
        ),
        (
            "a list for a request",
            review(r#""request":[@]"#),
            Fill::Items("{}"),
        ),
        (
            "unknown members of a review",
            review("@"),
            Fill::Items(r#""~":{}"#),
        ),
        (
            "a long uid",
            review(r#""request":{"uid":"@"}"#),
            Fill::Text(r#"\""#),
        ),
        (
            "a long name of a request",
            request(r#""name":"@","object":{}"#),
            Fill::Text(DELETE),
        ),
        (
            "a long namespace",
            request(r#""namespace":"@","object":{}"#),
            Fill::Text(DELETE),
        ),
        (
            "a text for dryRun",
            request(r#""dryRun":"@","object":{}"#),
            Fill::Text(DELETE),
        ),
        (
            "a text for a kind",
            request(r#""resource":"@","object":{}"#),
            Fill::Text(DELETE),
        ),
        (
            "many groups of a user",
            request(r#""userInfo":{"groups":[@]},"object":{}"#),
            Fill::Items(r#""""#),
        ),
        (
            "an old object",
            request(r#""oldObject":{"spec":{"containers":[@]}},"object":{}"#),
            Fill::Items("{}"),
        ),
    ];
    let both = |(name, frame, fill): (&str, String, Fill)| {
        ["/inject", "/workloads"].map(|path| Document {
            name: name.to_owned(),
            path,
            is_malformed: true,
            template: frame.clone(),
            fill: fill.clone(),
            capacity: MAX_BODY,
        })
    };
    table.into_iter().flat_map(both).collect()
}

// === impl Pod ===

impl PodDocument {
    fn new(name: &str, frame: &str, fill: Fill) -> Self {
        Self {
            name: name.to_owned(),
            template: frame.to_owned(),
            fill,
            capacity: MAX_BODY,
        }
    }

    /// The review of an object that has the pod at `%`.
    fn in_review(
        &self,
        path: &'static str,
        object: &str,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Document {
        let object = object.replace('%', &self.template);
        let frame = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"{group}","version":"{version}","kind":"{kind}"}},"namespace":"shop","operation":"CREATE","object":{object}}}}}"#
        );
        Document {
            name: self.name.clone(),
            path,
            is_malformed: false,
            template: frame,
            fill: self.fill.clone(),
            capacity: self.capacity,
        }
    }
}

// === impl Document ===

impl Document {
    /// The review's bytes, at most as many as the webhook reads.
    pub(crate) fn body(&self) -> Vec<u8> {
        let (before, after) = self
            .template
            .split_once(PLACEHOLDER)
            .expect("every frame has a hole");
        let room = self.capacity - before.len() - after.len();
        let mut body = Vec::with_capacity(self.capacity);
        body.extend_from_slice(before.as_bytes());
        self.fill.write(room, &mut body);
        body.extend_from_slice(after.as_bytes());
        assert!(
            body.len() <= MAX_BODY,
            "{}: {} bytes",
            self.name,
            body.len()
        );
        body
    }
}

// === impl Fill ===

impl Fill {
    fn write(&self, room: usize, body: &mut Vec<u8>) {
        match self {
            Self::Items(unit) if unit.contains('~') => {
                let (before, after) = unit.split_once('~').expect("it has one");
                let end = body.len() + room;
                for n in 0.. {
                    let item = format!("{}{before}{n}{after}", if n == 0 { "" } else { "," });
                    if body.len() + item.len() > end {
                        break;
                    }
                    body.extend_from_slice(item.as_bytes());
                }
            }
            Self::Items(unit) => {
                let more = format!(",{unit}").repeat((room - unit.len()) / (unit.len() + 1));
                body.extend_from_slice(unit.as_bytes());
                body.extend_from_slice(more.as_bytes());
            }
            Self::Text(text) => body.extend_from_slice(text.repeat(room / text.len()).as_bytes()),
            Self::Nested(open, middle, close, times) => {
                body.extend_from_slice(open.repeat(*times).as_bytes());
                body.extend_from_slice(middle.as_bytes());
                body.extend_from_slice(close.repeat(*times).as_bytes());
            }
            Self::Once(text) => body.extend_from_slice(text.as_bytes()),
        }
    }
}
