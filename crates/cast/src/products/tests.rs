use std::path::Path;

use farlink_host::beneath::Node;
use farlink_host::process::cpu_of_thread;

use super::*;

#[test]
fn the_digest_is_of_the_whole_file_however_much_of_it_was_read_before() {
    let content: Vec<u8> = (0..3 * READ as u32 / 2).map(|at| (at ^ (at >> 9)) as u8).collect();
    let path = std::env::temp_dir().join(format!("products-digest-{}", std::process::id()));
    std::fs::write(&path, &content).unwrap();
    let (root, filter) = (Arc::new(Directory::open(Path::new("/")).unwrap()), Filter::default());
    let source = SourcePath::new(path.to_str().unwrap()).unwrap();
    // All of it in order; none; what was broken off and begun again; what comes with holes.
    let [all, half] = [content.len() as u64, content.len() as u64 / 2];
    for read in [
        vec![(0, all)],
        vec![],
        vec![(0, half), (0, half + 9), (half, all - 1)],
        vec![(5, 9), (0, 7), (8, half)],
    ] {
        let mut products = Products::new(&root, None, std::slice::from_ref(&source), &filter, 4);
        let shape = products.next(&mut |not| panic!("{not:?}")).unwrap();
        let head = u64::from(shape.head());
        for (from, end) in read {
            let mut out = vec![0; (end - from) as usize];
            products.read(0, head + from..head + end, &mut out).unwrap();
            assert_eq!(out, content[from as usize..end as usize]);
        }
        // A step at a time, so that nothing else waits for it.
        assert!(products.prepare(0, head..head + 1).unwrap(), "content needs no digest");
        let before = products.known[0].hashed;
        while !products.prepare(0, head + all..shape.stream()).unwrap() {
            assert_eq!((products.known[0].hashed - before) % READ, 0);
        }
        let mut digest = [0; Digest::LEN];
        products.read(0, head + all..shape.stream(), &mut digest).unwrap();
        assert_eq!(Digest(digest), farlink_flow::digest::whole(&content));
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn what_somebody_else_owns_is_not_to_run_as_whoever_receives_it() {
    let directory = std::env::temp_dir();
    let mut status = status_of(&File::open(&directory).unwrap()).unwrap();
    let theirs = status.owner + 1;
    (status.node, status.mode) = (Node::File, 0o4755);
    assert_eq!(metadata(&status).mode, status.mode_of_a_copy());
    status.owner = theirs;
    assert_eq!(metadata(&status).mode, 0o755);
}

#[test]
fn a_file_that_is_changed_while_it_is_sent_has_no_digest() {
    let path = std::env::temp_dir().join(format!("products-changed-{}", std::process::id()));
    let (root, filter) = (Arc::new(Directory::open(Path::new("/")).unwrap()), Filter::default());
    let source = SourcePath::new(path.to_str().unwrap()).unwrap();
    let longer: fn(&Path) = |path| std::fs::write(path, "content and more").unwrap();
    let same_size: fn(&Path) = |path| {
        let file = File::options().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"C", 0).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    let to_nothing: fn(&Path) = |path| std::fs::write(path, "").unwrap();
    for (change, said) in [(longer, "changed"), (same_size, "changed"), (to_nothing, "shorter")] {
        // Changed before any of it is read, and between content and digest.
        for begun in [false, true] {
            std::fs::write(&path, "content").unwrap();
            let mut products = Products::new(&root, None, std::slice::from_ref(&source), &filter, 4);
            let shape = products.next(&mut |not| panic!("{not:?}")).unwrap();
            let (head, mut out) = (u64::from(shape.head()), vec![0; shape.stream() as usize]);
            if begun {
                products.read(0, 0..head + 7, &mut out[..shape.head() as usize + 7]).unwrap();
            }
            change(&path);
            match products.read(0, 0..shape.stream(), &mut out) {
                Err(Unread::Lost(reason)) => assert!(reason.contains(said), "{reason}"),
                other => panic!("{other:?}"),
            }
            let told = products.lose(0).map(|(path, _)| path);
            assert_eq!(told, path.file_name().map(|name| name.to_str().unwrap().to_owned()));
            assert_eq!(products.lose(0), None, "it is told once");
        }
    }
    // What was told stays so: repairs are of what the digest is of.
    for (change, said) in [(longer, "changed"), (same_size, "changed"), (to_nothing, "shorter")] {
        std::fs::write(&path, "content").unwrap();
        let mut products = Products::new(&root, None, std::slice::from_ref(&source), &filter, 4);
        let shape = products.next(&mut |not| panic!("{not:?}")).unwrap();
        let mut out = vec![0; shape.stream() as usize];
        products.read(0, 0..shape.stream(), &mut out).unwrap();
        let mut again = vec![0; shape.stream() as usize];
        products.read(0, 0..shape.stream(), &mut again).unwrap();
        assert_eq!(again, out);
        change(&path);
        match products.read(0, 0..shape.stream(), &mut again) {
            Err(Unread::Lost(reason)) => assert!(reason.contains(said), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn one_that_was_replaced_before_it_could_be_read_is_superseded() {
    let top = std::env::temp_dir().join(format!("products-replaced-{}", std::process::id()));
    std::fs::create_dir(&top).unwrap();
    let (root, filter) = (Arc::new(Directory::open(Path::new("/")).unwrap()), Filter::default());
    // No file is kept open for later.
    let mut products = Products::new(&root, None, &[], &filter, 0);
    products.watch(&SourcePath::new(top.to_str().unwrap()).unwrap()).unwrap();
    let panics = &mut |not: NotSent| panic!("{not:?}");
    for (version, name) in ["x", "x", "y", "x"].into_iter().enumerate() {
        std::fs::write(top.join(".part"), "version".repeat(version + 1)).unwrap();
        std::fs::rename(top.join(".part"), top.join(name)).unwrap();
        products.notice(panics);
        if version < 3 {
            assert!(products.next(panics).is_some());
        }
    }
    std::fs::remove_file(top.join("y")).unwrap();
    let lost = |products: &mut Products<'_>, product| {
        let range = 0..products.known[product as usize].shape.stream();
        let mut out = vec![0; range.end as usize];
        assert!(matches!(products.read(product, range, &mut out), Err(Unread::Lost(_))));
        let is_superseded = products.supersede(product);
        assert!(products.lose(product).is_some());
        assert_eq!(products.supersede(product), is_superseded);
        is_superseded
    };
    // By one whose turn has not come; by one that was superseded so; and by none.
    assert_eq!([1, 0, 2].map(|product| lost(&mut products, product)), [true, true, false]);
    let shape = products.next(panics).unwrap();
    let mut out = vec![0; shape.stream() as usize];
    products.read(3, 0..shape.stream(), &mut out).unwrap();
    assert!(!products.supersede(3), "it is the newest");
    std::fs::remove_dir_all(top).unwrap();
}

#[test]
fn receivers_learn_that_they_lack_one_that_was_to_be_replaced_and_was_not() {
    let top = std::env::temp_dir().join(format!("products-unreplaced-{}", std::process::id()));
    std::fs::create_dir(&top).unwrap();
    std::fs::write(top.join("x"), "named").unwrap();
    let (root, filter) = (Arc::new(Directory::open(Path::new("/")).unwrap()), Filter::default());
    let source = SourcePath::new(top.to_str().unwrap()).unwrap();
    let mut products = Products::new(&root, None, std::slice::from_ref(&source), &filter, 0);
    products.watch(&source).unwrap();
    let panics = &mut |not: NotSent| panic!("{not:?}");
    let lost = |products: &mut Products<'_>, product| {
        let range = 0..products.known[product as usize].shape.stream();
        let mut out = vec![0; range.end as usize];
        match products.read(product, range, &mut out) {
            Err(Unread::Lost(reason)) => {
                let is_superseded = products.supersede(product);
                (reason, is_superseded, products.lose(product).map(|(path, _)| path))
            }
            other => panic!("{other:?}"),
        }
    };
    products.notice(panics);
    assert!(products.next(panics).is_some());
    // While the walk goes on what appears has no turn yet.
    std::fs::write(top.join(".part"), "another").unwrap();
    std::fs::rename(top.join(".part"), top.join("x")).unwrap();
    products.notice(panics);
    let name = Some(format!("{}/x", top.file_name().unwrap().to_str().unwrap()));
    let (reason, is_superseded, told) = lost(&mut products, 0);
    assert!(reason.contains("another file") && is_superseded && told == name, "{reason} {told:?}");
    std::fs::remove_file(top.join("x")).unwrap();
    assert_eq!(products.next(panics).map(|shape| shape.content()), Some(0));
    let (reason, is_superseded, told) = lost(&mut products, 1);
    assert!(reason.contains("is no file any more") && !is_superseded && told == name, "{reason} {told:?}");
    assert!(products.next(panics).is_none());
    std::fs::remove_dir_all(top).unwrap();
}

#[test]
fn that_very_many_cannot_be_read_holds_nothing_up() {
    let (root, filter) = (Arc::new(Directory::open(Path::new("/")).unwrap()), Filter::default());
    let mut products = Products::new(&root, None, &[], &filter, 0);
    let file = Arc::new(File::open("/dev/null").unwrap());
    for number in 0..20_000 {
        let path = RelativePath::new(number.to_string()).unwrap();
        let metadata = Metadata { mode: 0, mtime_s: 0, mtime_ns: 0 };
        let source = Source::Piped(Arc::clone(&file));
        products.add(Product::new(path, metadata, 1, source).unwrap(), None);
    }
    let begun = cpu_of_thread();
    for product in 0..20_000 {
        assert!(!products.supersede(product) && products.lose(product).is_some());
    }
    // Looking through all that are later takes seconds.
    let taken = cpu_of_thread().since(begun);
    assert!(taken < Nanos(500_000_000), "{taken}");
}

#[test]
fn what_has_no_name_and_cannot_be_listed_is_told_with_its_reason() {
    let Step::NotSent(told) = Step::lacking(RelativePath::root(), "list /x: Permission denied".to_owned())
    else {
        panic!("nobody could name it")
    };
    assert!(told.failed && told.reason.contains("Permission denied"), "{told:?}");
}

#[test]
fn a_file_that_does_not_tell_its_size_is_not_sent_as_an_empty_one() {
    let (root, filter) = (Arc::new(Directory::open(Path::new("/")).unwrap()), Filter::default());
    let empty = std::env::temp_dir().join(format!("products-empty-{}", std::process::id()));
    File::create(&empty).unwrap();
    for (path, is_sent) in [(empty.to_str().unwrap(), true), ("/proc/self/status", false)] {
        let source = SourcePath::new(path).unwrap();
        let mut products = Products::new(&root, None, std::slice::from_ref(&source), &filter, 4);
        let shape = products.next(&mut |not| panic!("{not:?}")).unwrap();
        assert_eq!(shape.content(), 0);
        let mut out = vec![0; shape.stream() as usize];
        match products.read(0, 0..shape.stream(), &mut out) {
            Ok(()) => assert!(is_sent),
            Err(Unread::Lost(reason)) => assert!(!is_sent && reason.contains("pipe it in as -"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    std::fs::remove_file(&empty).unwrap();
}
