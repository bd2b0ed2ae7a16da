//! Generates the densest request bodies: each fills one list, map or string that admission reads up to the maximum
//! body size.

/// Maximum size of a body that the webhook reads, in bytes.
pub(crate) const MAX_BODY: usize = 7 << 20;

/// Kubernetes' limit on all annotations of an object together, in bytes.
/// <https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go>
const MAX_ANNOTATIONS: usize = 256 << 10;

/// An AdmissionReview with one list, map or string that is grown to the size limit.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// Name in the test's output.
    pub(crate) name: String,
    /// The path that it is sent to.
    pub(crate) path: &'static str,
    /// Whether the review itself is malformed, so that the webhook may reject it.
    pub(crate) is_malformed: bool,
    /// The review, with [`PLACEHOLDER`] where it is filled.
    template: String,
    fill: Fill,
    /// Maximum size, in bytes.
    capacity: usize,
}

/// The content that fills a document.
#[derive(Debug, Clone)]
enum Fill {
    /// Comma-separated copies of an element or a member; `~` becomes the copy's number.
    Items(&'static str),
    /// Copies of a text.
    Text(&'static str),
    /// Opening text, innermost value, closing text, and the depth of nesting.
    Nested(&'static str, &'static str, &'static str, usize),
    /// A text, once.
    Once(String),
}

/// Marks the place of a template that is filled.
const PLACEHOLDER: char = '@';

/// Marks the place of an object into which a pod is put.
const POD: char = '%';

/// The annotation that requests injection.
const INJECT_ANNOTATION: &str = r#""envoy-drainer.dev/inject":"true""#;

/// A control character that JSON does not have to escape and that Rust's `Debug` writes in six bytes.
const UNESCAPED_CONTROL: &str = "\u{7f}";

/// Maximum length of a string that admission reads, in bytes without escapes.
const MAX_TEXT: usize = 256 << 10;

/// An escaped control character, six bytes in JSON.
const ESCAPED_CONTROL: &str = r"\u0001";

/// An escaped backslash, which doubles in size each time it is escaped again.
const BACKSLASH: &str = r"\\";

/// Returns all documents.
pub(crate) fn all_documents() -> Vec<Document> {
    let pods = pod_documents();
    let pod_reviews = pods
        .iter()
        .map(|pod| pod.in_review("/inject", "%", "", "v1", "Pod"));
    let template = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"w"},"spec":{"template":%}}"#;
    let workload_reviews = pods
        .iter()
        .map(|pod| pod.in_review("/workloads", template, "apps", "v1", "Deployment"));
    pod_reviews
        .chain(workload_reviews)
        .chain(workloads())
        .chain(reviews())
        .collect()
}

/// Returns the review with the largest response.
pub(crate) fn largest_response_review() -> Vec<u8> {
    let review = invalid_values().in_review("/inject", "%", "", "v1", "Pod");
    review.body()
}

/// Returns the pods, each with one list, map or string that is grown.
fn pod_documents() -> Vec<PodDocument> {
    let mut pods = Vec::new();
    pods.extend(lists());
    pods.extend(maps());
    pods.extend(texts());
    pods.extend(wrong_types());
    pods.extend(bootstraps());
    pods.extend(annotations_at_the_limit());
    pods.push(expansion());
    pods.push(invalid_values());
    pods
}

/// A pod with one list, map or string that is grown, not yet in a review.
#[derive(Debug, Clone)]
struct PodDocument {
    name: String,
    template: String,
    fill: Fill,
    capacity: usize,
}

/// Returns the template of a pod that requests a drainer.
fn pod_with_inject(container: &str, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}}}},"spec":{{"containers":[{{"name":"envoy"{container}}}]{spec}}}}}"#
    )
}

/// Returns pods with long lists and deep nesting.
fn lists() -> Vec<PodDocument> {
    let pod_with_list = |list: &str| {
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
    let templates = [
        ("containers", pod_with_list("containers"), "{}"),
        (
            "containers that are numbers",
            pod_with_list("containers"),
            "0",
        ),
        (
            "containers that are null",
            pod_with_list("containers"),
            "null",
        ),
        ("initContainers", pod_with_list("initContainers"), "{}"),
        (
            "native sidecars",
            pod_with_list("initContainers"),
            r#"{"restartPolicy":"Always"}"#,
        ),
        (
            "containers named envoy",
            pod_with_list("containers"),
            r#"{"name":"envoy","image":"envoy"}"#,
        ),
        (
            "Envoys by their image",
            pod_with_list("containers"),
            r#"{"name":"e~","image":"envoy"}"#,
        ),
        (
            "drainers",
            pod_with_list("containers"),
            r#"{"name":"envoy-drainer"}"#,
        ),
        (
            "probes",
            pod_with_list("containers"),
            r#"{"readinessProbe":{"httpGet":{"port":1}}}"#,
        ),
        (
            "containers with a port",
            pod_with_list("containers"),
            r#"{"ports":[{"containerPort":~}]}"#,
        ),
        ("volumes", pod_with_inject("", r#","volumes":[@]"#), "{}"),
        (
            "volumes with the drainer's name",
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
            "args with a Unicode escape",
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
            "repeated spec",
            format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}}}},@}}"#),
            r#""spec":{}"#,
        ),
        (
            "repeated containers",
            pod_with_inject("", ",@"),
            r#""containers":[]"#,
        ),
        (
            "repeated annotations",
            format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}},@}}}}"#),
            r#""annotations":{}"#,
        ),
    ];
    let wide = [
        (
            "containers with all lists long",
            pod_with_list("containers"),
            wide_container(),
        ),
        (
            "initContainers with all lists long",
            pod_with_list("initContainers"),
            wide_container(),
        ),
    ];
    let templates = templates
        .map(|(name, template, item)| PodDocument::new(name, &template, Fill::Items(item)));
    let wide = wide.map(|(name, template, item)| {
        let containers = vec![item; 1_000].join(",");
        PodDocument::new(name, &template, Fill::Once(containers))
    });
    let nested = [
        (
            "nesting in an unknown field",
            pod_with_inject("", r#","x":@"#),
        ),
        ("nesting in containers", pod_with_list("containers")),
        (
            "nesting in labels",
            format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}},"labels":@}}}}"#),
        ),
    ]
    .map(|(name, template)| PodDocument::new(name, &template, Fill::Nested("[", "", "]", 200_000)));
    let deepest_array = PodDocument::new(
        "maximum nesting of arrays",
        &pod_with_inject("", r#","x":@"#),
        Fill::Nested("[", "", "]", MAX_BODY / 2 - 512),
    );
    let deepest_object = PodDocument::new(
        "maximum nesting of objects",
        &pod_with_inject("", r#","x":@"#),
        Fill::Nested(r#"{"":"#, "0", "}", MAX_BODY / 6 - 512),
    );
    templates
        .into_iter()
        .chain(wide)
        .chain(nested)
        .chain([deepest_array, deepest_object])
        .collect()
}

/// Returns a container with 400 elements in each of its four lists: below the limit of one list, but many such
/// containers are above the limit of all lists together.
fn wide_container() -> String {
    let list = |item: &str| vec![item; 400].join(",");
    format!(
        r#"{{"ports":[{}],"volumeMounts":[{}],"command":[{}],"args":[{}]}}"#,
        list("{}"),
        list("{}"),
        list(r#""""#),
        list(r#""""#)
    )
}

/// Returns pods with large maps.
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
            "annotations with a known key",
            annotations.clone(),
            r#""envoy-drainer.dev/port":"1""#,
        ),
        (
            "annotations with a nearly known key",
            annotations.clone(),
            r#""envoy-drainer.dev/drain-timeou~":"""#,
        ),
        (
            "annotations with an unknown key",
            annotations.clone(),
            r#""envoy-drainer.dev/~":"""#,
        ),
        (
            "escaped annotations",
            annotations.clone(),
            r#""\u0065nvoy-drainer.dev/~":"\n""#,
        ),
        (
            "annotations with a similar prefix",
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
            "inject annotations",
            annotations.clone(),
            r#""envoy-drainer.dev/inject":"true""#,
        ),
        (
            "status annotations",
            annotations,
            r#""envoy-drainer.dev/status":"{}""#,
        ),
        ("labels", labels.clone(), r#""~":"""#),
        (
            "labels with our prefix",
            labels,
            r#""envoy-drainer.dev/~":"""#,
        ),
        (
            "nodeSelector",
            pod_with_inject("", r#","nodeSelector":{@}"#),
            r#""~":"""#,
        ),
        (
            "nodeSelector of operating systems",
            pod_with_inject("", r#","nodeSelector":{@}"#),
            r#""kubernetes.io/os":"linux""#,
        ),
        ("requests", resources("requests"), r#""~":1"#),
        ("limits", resources("limits"), r#""cpu":1"#),
        (
            "unknown members of metadata",
            format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION}}},@}}}}"#),
            r#""envoy-drainer.dev/~":0"#,
        ),
    ]
    .map(|(name, template, item)| PodDocument::new(name, &template, Fill::Items(item)))
    .into()
}

/// Returns pods with a long text in each string field that admission reads.
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
    let templates = [
        ("name of the container", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true"}},"spec":{"containers":[{"name":"@"}]}}"#.to_owned()),
        ("name of a second container", pod_with_inject("", r#","initContainers":[{"restartPolicy":"Always","name":"@"}]"#)),
        ("image", pod_with_inject(r#","image":"@""#, "")),
        ("image of a container", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true"}},"spec":{"containers":[{"image":"@"}]}}"#.to_owned()),
        ("element of args", pod_with_inject(r#","args":["@"]"#, "")),
        ("--config-yaml", pod_with_inject(r#","args":["--config-yaml","admin: @"]"#, "")),
        ("element of command", pod_with_inject(r#","command":["@"]"#, "")),
        ("name of a port", pod_with_inject(r#","ports":[{"name":"@"}]"#, "")),
        ("protocol", pod_with_inject(r#","ports":[{"containerPort":9902,"protocol":"@"}]"#, "")),
        ("restartPolicy", pod_with_inject(r#","restartPolicy":"@""#, "")),
        ("port of a probe", pod_with_inject(r#","readinessProbe":{"httpGet":{"port":"@"}}"#, "")),
        ("limit of CPU", pod_with_inject(r#","resources":{"limits":{"cpu":"@"}}"#, "")),
        ("name of a volume", pod_with_inject("", r#","volumes":[{"name":"@"}]"#)),
        ("name of the socket's volume", socket(r#""mountPath":"/a","name":"@""#)),
        ("subPath of the socket's volume", socket(r#""mountPath":"/a","subPath":"@""#)),
        ("path of a mount", socket(r#""mountPath":"@""#)),
        ("name of the pod's operating system", pod_with_inject("", r#","os":{"name":"@"}"#)),
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
        ("value of an unknown key", annotation("x")),
        ("key with our prefix", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true","envoy-drainer.dev/@":"1"}},"spec":{"containers":[{"name":"envoy"}]}}"#.to_owned()),
        ("key with a similar prefix", r#"{"metadata":{"annotations":{"envoydrainer@":"1"}},"spec":{"containers":[{"name":"envoy"}]}}"#.to_owned()),
        ("key with our prefix and a number as value", metadata(r#""annotations":{"envoy-drainer.dev/@":1}"#)),
        ("value of another annotation", r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true","x":"@"}},"spec":{"containers":[{"name":"envoy"}]}}"#.to_owned()),
        ("name of the pod", metadata(r#""name":"@""#)),
        ("generateName of the pod", metadata(r#""generateName":"@""#)),
        ("namespace of the pod", metadata(r#""namespace":"@""#)),
        ("name of the owner", metadata(r#""ownerReferences":[{"controller":true,"uid":"1","kind":"K","apiVersion":"v1","name":"@"}]"#)),
        ("uid of the owner", metadata(r#""ownerReferences":[{"controller":true,"uid":"@","kind":"K","apiVersion":"v1","name":"n"}]"#)),
        ("label managed-by", metadata(r#""labels":{"app.kubernetes.io/managed-by":"@"}"#)),
        ("key of metadata", metadata(r#""envoy-drainer.dev/@":"1""#)),
        ("key of the pod", r#"{"@":1}"#.to_owned()),
        ("unknown text", pod_with_inject("", r#","x":"@""#)),
        ("grace period in digits", pod_with_inject("", r#","terminationGracePeriodSeconds":1@"#)),
        ("port in digits", pod_with_inject(r#","ports":[{"containerPort":1@}]"#, "")),
        ("CPU in digits", pod_with_inject(r#","resources":{"limits":{"cpu":1@}}"#, "")),
        ("fraction of CPU in digits", pod_with_inject(r#","resources":{"limits":{"cpu":1.@}}"#, "")),
        ("unknown digits", pod_with_inject("", r#","x":1@"#)),
    ];
    let takes_digits = |name: &str| name.contains("digits");
    let mut pods = Vec::new();
    for (name, template) in templates {
        if takes_digits(name) {
            pods.push(PodDocument::new(name, &template, Fill::Text("9")));
            continue;
        }
        for (variant, text) in [
            ("", "x"),
            ("escaped ", r#"\""#),
            ("DEL characters in ", UNESCAPED_CONTROL),
        ] {
            pods.push(PodDocument::new(
                &format!("{variant}{name}"),
                &template,
                Fill::Text(text),
            ));
        }
        for (variant, escaped) in [
            ("control characters up to the limit in ", ESCAPED_CONTROL),
            ("backslashes up to the limit in ", BACKSLASH),
        ] {
            let text = escaped.repeat(MAX_TEXT - overhead(&template));
            pods.push(PodDocument::new(
                &format!("{variant}{name}"),
                &template,
                Fill::Once(text),
            ));
        }
    }
    pods.extend(repeated_texts());
    pods
}

/// Returns the length of the string around the placeholder without the placeholder, in bytes.
fn overhead(template: &str) -> usize {
    let (before, after) = template
        .split_once(PLACEHOLDER)
        .expect("every template has a placeholder");
    let before = before.rsplit('"').next().unwrap_or_default();
    let after = after.split('"').next().unwrap_or_default();
    before.len() + after.len()
}

/// Returns pods with texts that a patch repeats, up to the limit of all texts and up to those of names and paths.
fn repeated_texts() -> Vec<PodDocument> {
    let template = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},"envoy-drainer.dev/existing-hook":"replace","envoy-drainer.dev/admin-address":"unix:/a/b"}}}},"spec":{{"containers":[@]}}}}"#
    );
    let mount = |name: usize, path: usize| {
        format!(
            r#"{{"name":"{}","mountPath":"/a{}","subPath":"{}"}}"#,
            ESCAPED_CONTROL.repeat(name),
            "/".repeat(path - 2),
            ESCAPED_CONTROL.repeat(path)
        )
    };
    let container = |name: usize, mount: &str, hook: usize| {
        format!(
            r#"{{"name":"{}","image":"envoy","volumeMounts":[{mount}],"lifecycle":{{"preStop":"{}"}}}}"#,
            BACKSLASH.repeat(name),
            BACKSLASH.repeat(hook)
        )
    };
    let probed_container =
        r#",{"readinessProbe":{"tcpSocket":{"port":65535},"periodSeconds":4294967295}}"#;
    let longest_container = container(63, &mount(63, 4096), 2047);
    [
        (
            "three texts at the limit in a mount",
            container(1, &mount(MAX_TEXT, MAX_TEXT), 1),
        ),
        (
            "a name of 32,200 backslashes",
            container(32_200, &mount(1, 2), 1),
        ),
        ("names and paths at their limits", longest_container.clone()),
        (
            "names and paths at their limits, and probes",
            format!("{longest_container}{}", probed_container.repeat(1_999)),
        ),
    ]
    .map(|(name, containers)| PodDocument::new(name, &template, Fill::Once(containers)))
    .into()
}

/// Returns pods with a long text in place of another type, which a message must not repeat.
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
            "automountServiceAccountToken",
            pod_with_inject("", r#","automountServiceAccountToken":"@""#),
        ),
        (
            "terminationGracePeriodSeconds",
            pod_with_inject("", r#","terminationGracePeriodSeconds":"@""#),
        ),
        ("affinity", pod_with_inject("", r#","affinity":"@""#)),
    ]
    .map(|(name, template)| {
        PodDocument::new(
            &format!("a text for {name}"),
            &template,
            Fill::Text(UNESCAPED_CONTROL),
        )
    })
    .into()
}

/// Returns pods with costly bootstraps in `--config-yaml`, of up to 64 KiB.
fn bootstraps() -> Vec<PodDocument> {
    const SIZE: usize = 60 << 10;
    let fill = |item: &str| item.repeat(SIZE / item.len());
    let anchors: String = (0..60).map(|n| format!("&a{n} [")).collect();
    let yamls = [
        (
            "nested anchors",
            format!(
                "admin: {{}}\nx: {anchors}{}{}",
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
            "exponential aliases (billion laughs)",
            format!(
                "admin: {{}}\na0: &a0 [1]\n{}",
                (1..60)
                    .map(|n| {
                        let previous = n - 1;
                        format!(
                            "a{n}: &a{n} [*a{previous},*a{previous},*a{previous},*a{previous}]\n"
                        )
                    })
                    .collect::<String>()
            ),
        ),
        ("numbers", format!("admin: {{}}\nx: [{}1]", fill("1,"))),
        ("maps", format!("admin: {{}}\nx: [{}1]", fill("{a: b},"))),
        (
            "keys",
            format!(
                "admin: {{}}\n{}",
                (0..6_000).map(|n| format!("k{n}: 1\n")).collect::<String>()
            ),
        ),
        ("nesting", format!("admin: {{}}\nx: {}", fill("["))),
        ("a scalar", format!("admin: '{}'", fill("x"))),
        (
            "a scalar of DEL characters",
            format!("admin: \"{}\"", fill("\u{7f}")),
        ),
        ("comments", format!("admin: {{}}\n{}", fill("# x\n"))),
        ("documents", format!("admin: {{}}\n{}", fill("---\n"))),
        ("tags", format!("admin: {{}}\nx: [{}1]", fill("!!x 1,"))),
        ("variables", format!("admin: {}", fill("$(A)"))),
        (
            "variables in a path",
            format!(
                "admin: {{address: {{pipe: {{path: '/{}'}}}}}}",
                fill("$(A)")
            ),
        ),
    ];
    let template = pod_with_inject(r#","args":["--config-yaml","@"]"#, "");
    yamls
        .map(|(name, yaml)| {
            let text = serde_json::Value::from(yaml).to_string();
            let escaped = text[1..text.len() - 1].to_owned();
            PodDocument::new(
                &format!("--config-yaml of {name}"),
                &template,
                Fill::Once(escaped),
            )
        })
        .into()
}

/// Returns pods whose annotations have exactly the size that the API server accepts at most.
fn annotations_at_the_limit() -> Vec<PodDocument> {
    let template = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},@}}}},"spec":{{"containers":[{{"name":"envoy"}}]}}}}"#
    );
    let inject_size = "envoy-drainer.dev/inject".len() + "true".len();
    let one = format!(r#""x":"{}""#, "x".repeat(MAX_ANNOTATIONS - inject_size - 1));
    // Ten bytes each; the last one takes the remaining bytes.
    let capacity = MAX_ANNOTATIONS - inject_size;
    let mut many: Vec<_> = (0..capacity / 10 - 1)
        .map(|n| format!(r#""k{n:07}":"xx""#))
        .collect();
    many.push(format!(
        r#""y":"{}""#,
        "y".repeat(capacity - many.len() * 10 - 1)
    ));
    vec![
        PodDocument::new("one annotation at the limit", &template, Fill::Once(one)),
        PodDocument::new(
            "many annotations at the limit",
            &template,
            Fill::Once(many.join(",")),
        ),
    ]
}

/// Returns a pod with sixteen variables that each double a text, and 20,000 that reference the last one.
fn expansion() -> PodDocument {
    let first = format!(r#"{{"name":"A0","value":"{}"}}"#, "x".repeat(2));
    let doubling = (1..16).map(|n| {
        let previous = n - 1;
        format!(r#"{{"name":"A{n}","value":"$(A{previous})$(A{previous})"}}"#)
    });
    let references = (0..20_000).map(|n| format!(r#"{{"name":"B{n}","value":"$(A15)"}}"#));
    let env: Vec<_> = [first]
        .into_iter()
        .chain(doubling)
        .chain(references)
        .collect();
    let template = pod_with_inject(r#","args":["--config-yaml","admin: $(A0)"],"env":[@]"#, "");
    PodDocument::new(
        "variables that double a text",
        &template,
        Fill::Once(env.join(",")),
    )
}

/// Returns a pod with a long invalid value in every setting whose message repeats it, and with unknown keys.
fn invalid_values() -> PodDocument {
    let names = [
        "admin-address",
        "port",
        "drain-delay",
        "min-drain-duration",
        "drain-timeout",
        "idle-exit",
        "quiet-period",
        "health-failure-delay",
        "exit-at-connections",
        "native-sidecar",
        "existing-hook",
        "cpu-request",
        "memory-request",
        "cpu-limit",
        "memory-limit",
    ];
    let value = UNESCAPED_CONTROL.repeat(1024);
    let invalid = names.map(|name| format!(r#""envoy-drainer.dev/{name}":"{value}""#));
    let unknown = (0..60).map(|n| format!(r#""envoy-drainer.dev/drain-timeou{n}":"""#));
    let all: Vec<_> = invalid.into_iter().chain(unknown).collect();
    let template = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},@}}}},"spec":{{"containers":[{{"name":"envoy"}}]}}}}"#
    );
    PodDocument::new("invalid values", &template, Fill::Once(all.join(",")))
}

/// Returns the reviews of workloads.
fn workloads() -> Vec<Document> {
    const SMALL_OBJECT: &str = r#"{"":0}"#;
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
            "annotations with a nearly known key",
            &format!(r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},@}}}}}}"#),
            Fill::Items(r#""envoy-drainer.dev/drain-timeou~":"""#),
        ),
        PodDocument::new(
            "many small objects",
            &pod_with_inject("", r#","x":[@]"#),
            Fill::Items(SMALL_OBJECT),
        ),
    ];
    let mut documents = Vec::new();
    for (group, version, kind, template) in kinds {
        for pod in &dense {
            let pod = PodDocument {
                name: format!("{} of a {kind}", pod.name),
                ..pod.clone()
            };
            documents.push(pod.in_review("/workloads", template, group, version, kind));
        }
    }
    let object =
        |members: &str| format!(r#"{{"apiVersion":"apps/v1","kind":"Deployment",{members}}}"#);
    let long_name = "x".repeat(60);
    let unknown_key = format!(r#""envoy-drainer.dev/{long_name}~":"""#);
    let unknown_key: &'static str = unknown_key.leak();
    let rollout = |members: &str| {
        format!(r#"{{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout",{members}}}"#)
    };
    let inject_template = r#"{"metadata":{"annotations":{"envoy-drainer.dev/inject":"true"}}}"#;
    let objects = [
        (
            "object with many small objects",
            object(r#""x":[@]"#),
            Fill::Items(SMALL_OBJECT),
        ),
        (
            "object with many numbers",
            object(r#""x":[@]"#),
            Fill::Items("0"),
        ),
        (
            "nesting in an object",
            object(r#""x":@"#),
            Fill::Nested("[", "", "]", 200_000),
        ),
        (
            "object's unknown annotations",
            object(r#""metadata":{"annotations":{@}}"#),
            Fill::Items(unknown_key),
        ),
        (
            "object's known annotations",
            object(r#""metadata":{"annotations":{@}}"#),
            Fill::Items(r#""envoy-drainer.dev/port":"""#),
        ),
        (
            "object's labels",
            object(r#""metadata":{"labels":{@}}"#),
            Fill::Items(unknown_key),
        ),
        (
            "object's metadata",
            object(r#""metadata":{@}"#),
            Fill::Items(unknown_key),
        ),
        (
            "object's owners",
            object(r#""metadata":{"ownerReferences":[@]}"#),
            Fill::Items("{}"),
        ),
        (
            "object's repeated metadata",
            object("@"),
            Fill::Items(r#""metadata":{}"#),
        ),
        (
            "template's annotations",
            object(r#""spec":{"template":{"metadata":{"annotations":{@}}}}"#),
            Fill::Items(unknown_key),
        ),
        (
            "many annotations maps",
            object(r#""x":[@]"#),
            Fill::Items(r#"{"annotations":{"envoy-drainer.dev/port":""}}"#),
        ),
        (
            "many possible pod templates",
            rollout(r#""x":[@]"#),
            Fill::Items(r#"{"spec":{"containers":[]}}"#),
        ),
        (
            "many templates that request injection",
            rollout(r#""x":[@]"#),
            Fill::Items(inject_template),
        ),
        (
            "a long kind",
            r#"{"apiVersion":"v1","kind":"@"}"#.to_owned(),
            Fill::Text(UNESCAPED_CONTROL),
        ),
        (
            "a long name",
            object(r#""metadata":{"name":"@"}"#),
            Fill::Text(UNESCAPED_CONTROL),
        ),
        (
            "a text for a template",
            object(r#""spec":{"template":"@"}"#),
            Fill::Text(UNESCAPED_CONTROL),
        ),
        (
            "a text for a spec",
            object(r#""spec":"@""#),
            Fill::Text(UNESCAPED_CONTROL),
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
    let objects = objects.map(|(name, template, fill)| {
        PodDocument::new(name, &template, fill).in_review(
            "/workloads",
            "%",
            "apps",
            "v1",
            "Deployment",
        )
    });
    documents.extend(objects);
    // Smaller than the maximum body: a size that the API server itself accepts.
    documents.push(
        PodDocument {
            capacity: 5 << 19,
            ..PodDocument::new(
                "30,000 keys under our prefix",
                &object(r#""metadata":{"annotations":{@}}"#),
                Fill::Items(unknown_key),
            )
        }
        .in_review("/workloads", "%", "apps", "v1", "Deployment"),
    );
    documents
}

/// Returns reviews that are malformed themselves, for both paths.
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
        ("not JSON", "@".to_owned(), Fill::Text("x")),
        ("a text", r#""@""#.to_owned(), Fill::Text(UNESCAPED_CONTROL)),
        ("a list", "[@]".to_owned(), Fill::Items("{}")),
        (
            "nesting in place of a review",
            "@".to_owned(),
            Fill::Nested("[", "", "]", MAX_BODY / 2),
        ),
        (
            "a long kind of review",
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"@"}"#.to_owned(),
            Fill::Text(UNESCAPED_CONTROL),
        ),
        (
            "a text for a request",
            review(r#""request":"@""#),
            Fill::Text(UNESCAPED_CONTROL),
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
            Fill::Text(UNESCAPED_CONTROL),
        ),
        (
            "a long namespace",
            request(r#""namespace":"@","object":{}"#),
            Fill::Text(UNESCAPED_CONTROL),
        ),
        (
            "a text for dryRun",
            request(r#""dryRun":"@","object":{}"#),
            Fill::Text(UNESCAPED_CONTROL),
        ),
        (
            "a text for a kind",
            request(r#""resource":"@","object":{}"#),
            Fill::Text(UNESCAPED_CONTROL),
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
    let for_both_paths = |(name, template, fill): (&str, String, Fill)| {
        ["/inject", "/workloads"].map(|path| Document {
            name: name.to_owned(),
            path,
            is_malformed: true,
            template: template.clone(),
            fill: fill.clone(),
            capacity: MAX_BODY,
        })
    };
    table.into_iter().flat_map(for_both_paths).collect()
}

// === impl PodDocument ===

impl PodDocument {
    fn new(name: &str, template: &str, fill: Fill) -> Self {
        Self {
            name: name.to_owned(),
            template: template.to_owned(),
            fill,
            capacity: MAX_BODY,
        }
    }

    /// Puts the pod into an object, in place of [`POD`], and returns the object's review.
    fn in_review(
        &self,
        path: &'static str,
        object: &str,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Document {
        let object = object.replace(POD, &self.template);
        let template = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"{group}","version":"{version}","kind":"{kind}"}},"namespace":"shop","operation":"CREATE","object":{object}}}}}"#
        );
        Document {
            name: self.name.clone(),
            path,
            is_malformed: false,
            template,
            fill: self.fill.clone(),
            capacity: self.capacity,
        }
    }
}

// === impl Document ===

impl Document {
    /// Returns the review's bytes, at most [`MAX_BODY`] of them.
    pub(crate) fn body(&self) -> Vec<u8> {
        let (before, after) = self
            .template
            .split_once(PLACEHOLDER)
            .expect("every template has a placeholder");
        let available = self.capacity - before.len() - after.len();
        let mut body = Vec::with_capacity(self.capacity);
        body.extend_from_slice(before.as_bytes());
        self.fill.write(available, &mut body);
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
    /// Appends at most `available` bytes to the body.
    fn write(&self, available: usize, body: &mut Vec<u8>) {
        match self {
            Self::Items(item) if item.contains('~') => {
                let (before, after) = item.split_once('~').expect("the item contains `~`");
                let end = body.len() + available;
                for n in 0.. {
                    let item = format!("{}{before}{n}{after}", if n == 0 { "" } else { "," });
                    if body.len() + item.len() > end {
                        break;
                    }
                    body.extend_from_slice(item.as_bytes());
                }
            }
            Self::Items(item) => {
                let rest = format!(",{item}").repeat((available - item.len()) / (item.len() + 1));
                body.extend_from_slice(item.as_bytes());
                body.extend_from_slice(rest.as_bytes());
            }
            Self::Text(text) => {
                body.extend_from_slice(text.repeat(available / text.len()).as_bytes())
            }
            Self::Nested(open, middle, close, depth) => {
                body.extend_from_slice(open.repeat(*depth).as_bytes());
                body.extend_from_slice(middle.as_bytes());
                body.extend_from_slice(close.repeat(*depth).as_bytes());
            }
            Self::Once(text) => body.extend_from_slice(text.as_bytes()),
        }
    }
}
